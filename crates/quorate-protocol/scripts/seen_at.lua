local function seen_at(key)
  local held = redis.pcall('GET', key)
  if not held then return false end
  local left = redis.call('PTTL', key)
  if type(held) ~= 'table' then return {left, held} end
  if not has_readers(key) then return held end
  local readers = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  local time, seen = redis.call('TIME'), {left, ''}
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  for i = 1, #readers, 2 do
    local ends = readers[i + 1] - now
    if ends > 0 then
      table.insert(seen, readers[i])
      table.insert(seen, ends)
    end
  end
  return seen
end
