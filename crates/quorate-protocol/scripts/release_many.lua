local keys, argv, ours, replies = KEYS, ARGV, {}, {}
local held = redis.call('MGET', unpack(keys))
for i = 1, #keys do
  if is_freed(held[i], argv[i]) then ours[#ours + 1], replies[i] = keys[i], 1 else replies[i] = 0 end
end
if #ours > 0 then redis.call('DEL', unpack(ours)) end
return replies
