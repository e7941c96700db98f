local held = redis.pcall('GET', KEYS[1])
if not held then return false end
if type(held) == 'table' then
  if not has_readers(KEYS[1]) then return held end
  held = ''
end
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and ARGV[1] == '' then redis.call('DEL', KEYS[1]) end
if left >= 0 and ARGV[1] ~= '' then
  local kept = redis.pcall('SET', KEYS[1], ARGV[1], 'KEEPTTL')
  if kept.err then redis.call('SET', KEYS[1], ARGV[1], 'PX', math.max(left, 1)) end
end
return {left, held}
