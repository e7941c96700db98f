local function held_at(key)
  local held = redis.pcall('GET', key)
  if type(held) ~= 'table' then return held, false end
  if has_readers(key) then return '', true end
  return redis.call('GET', key), false
end
