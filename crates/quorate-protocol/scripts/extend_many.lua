local keys, argv, replies, last = KEYS, ARGV, {}, 0
local held = redis.call('MGET', unpack(keys))
for i = 1, #argv, 3 do
  local first, found, ttl = last + 1, 1, argv[i + 2]
  last = last + argv[i + 1]
  for k = first, last do
    if held[k] ~= argv[i] then
      found = held[k] or type(redis.pcall('GET', keys[k])) ~= 'table' and 0
      break
    end
  end
  for k = first, found == 1 and last or 0 do
    local kept = redis.call('PEXPIRE', keys[k], ttl, 'GT') == 0
    if kept and redis.call('PTTL', keys[k]) < tonumber(ttl) then
      redis.call('PEXPIRE', keys[k], ttl)
    end
  end
  replies[#replies + 1] = found
end
redis.call('MGET', unpack(keys))
return replies
