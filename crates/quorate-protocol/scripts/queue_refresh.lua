local waiters, seen, me = KEYS[1], KEYS[2], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', now)) do
  redis.call('ZREM', waiters, entry)
  redis.call('ZREM', seen, entry)
end
if not redis.call('ZSCORE', waiters, me) then
  local last = redis.call('ZRANGE', waiters, -1, -1, 'WITHSCORES')
  redis.call('ZADD', waiters, (last[2] or 0) + 1, me)
end
redis.call('ZADD', seen, string.format('%.0f', now + 2000), me)
redis.call('PEXPIRE', waiters, 10000)
redis.call('PEXPIRE', seen, 10000)
if redis.call('PTTL', KEYS[3]) < 5000 then redis.call('SET', KEYS[3], '', 'PX', 10000) end
local rank, before = redis.call('ZRANK', waiters, me), ''
if rank > 0 then before = redis.call('ZRANGE', waiters, rank - 1, rank - 1)[1] end
local held = 0
for i = 4, #KEYS do
  if redis.call('PTTL', KEYS[i]) > 0 then held = i - 3 end
end
return {before, redis.call('ZRANGE', waiters, 0, 0)[1], held}
