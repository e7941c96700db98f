local function is_waited_for(queue) return redis.call('EXISTS', queue) == 1 end
