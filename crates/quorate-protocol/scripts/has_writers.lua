local function is_waited_for(queue)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', queue, '(' .. now, '+inf')) do
    if string.sub(entry, 2, 2) ~= 'r' then return true end
  end
end
