local function held_at(key)
  local held = redis.pcall('GET', key)
  if type(held) ~= 'table' then return held, false end
  if redis.call('PTTL', key) >= 0 and not redis.pcall('ZRANGE', key, 0, 0).err then return '', true end
  return redis.call('GET', key), false
end
