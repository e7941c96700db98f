local ours = 0
for i = 1, #KEYS do
  local score = redis.pcall('ZSCORE', KEYS[i], ARGV[1])
  if type(score) == 'table' and not string.find(score.err, 'WRONGTYPE') then return score end
  if type(score) == 'string' and redis.call('PTTL', KEYS[i]) >= 0 then
    redis.call('ZREM', KEYS[i], ARGV[1])
    put(KEYS[i], false)
    if tonumber(score) > now then ours = ours + 1 end
  end
end
if ours == #KEYS then return 1 end
return 0
