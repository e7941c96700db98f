local keys, argv, ours, replies, last = KEYS, ARGV, {}, {}, 0
local held = redis.call('MGET', unpack(keys))
for i = 1, #argv, 2 do
  local first, all = last + 1, 1
  last = last + argv[i + 1]
  for k = first, last do
    if is_freed(held[k], argv[i]) then ours[#ours + 1] = keys[k] else all = 0 end
  end
  replies[#replies + 1] = all
end
if #ours > 0 then redis.call('DEL', unpack(ours)) end
return replies
