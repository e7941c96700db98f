if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
return redis.call('SET', KEYS[1], ARGV[2])
