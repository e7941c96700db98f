for i = 1, #KEYS do
  if taken(KEYS[i]) or not is_ours(KEYS[i]) then return 0 end
end
for i = 1, #KEYS do put(KEYS[i], math.max(redis.call('ZSCORE', KEYS[i], ARGV[1]), now + ARGV[2])) end
return 1
