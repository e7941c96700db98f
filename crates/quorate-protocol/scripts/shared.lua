local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function taken(key)
  local held, is_read = held_at(key)
  return not is_read and held
end
local function is_ours(key)
  local score = redis.call('ZSCORE', key, ARGV[1])
  return score and tonumber(score) > now
end
local function put(key, score)
  if score then redis.call('ZADD', key, string.format('%.0f', score), ARGV[1]) end
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', now)) do redis.call('ZREM', key, gone) end
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if last[2] then redis.call('PEXPIRE', key, string.format('%.0f', last[2] - now)) end
end
