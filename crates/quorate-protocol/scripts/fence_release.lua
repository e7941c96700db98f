local n, ours = #KEYS / 2, 0
for i = 1, n do
  local held = redis.pcall('GET', KEYS[i])
  if type(held) == 'table' and held.err and not string.find(held.err, 'WRONGTYPE') then return held end
  if is_freed(held, ARGV[1]) then
    ours = ours + redis.call('DEL', KEYS[i])
    local raw = redis.pcall('GET', KEYS[n + i])
    if not raw then raw = '0' end
    local f = type(raw) == 'string' and #raw <= 16 and string.find(raw, '^%d+$') and tonumber(raw)
    if f and f < tonumber(ARGV[2]) then redis.pcall('SET', KEYS[n + i], ARGV[2]) end
  end
end
if ours == n then return 1 end
return 0
