local errors = {}
for _, command in ipairs({{'GET', KEYS[1]}, {'DEL', KEYS[1]}, {'PTTL', KEYS[1]}, {'PEXPIRE', KEYS[1], '1'}}) do
  local reply = redis.pcall(unpack(command))
  if type(reply) == 'table' and reply.err then table.insert(errors, command[1] .. ' ' .. reply.err) end
end
if #errors == 0 then return 1 end
return errors
