local function ask(...)
  local reply = redis.pcall(...)
  return type(reply) ~= 'table' and reply
end
return {ask('PTTL', KEYS[1]), ask('INFO'), ask('GET', KEYS[2])}
