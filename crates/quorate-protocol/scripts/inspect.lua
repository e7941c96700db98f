local held = redis.call('GET', KEYS[1])
if not held then return false end
return {redis.call('PTTL', KEYS[1]), held}
