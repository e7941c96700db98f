local errors, key = {}, KEYS[1] or ARGV[1]
for _, command in ipairs({{'GET', key}, {'DEL', key}, {'PTTL', key}, {'PEXPIRE', key, '1'}}) do
  local reply = redis.pcall(unpack(command))
  if type(reply) == 'table' and reply.err then table.insert(errors, command[1] .. ' ' .. reply.err) end
end
if #errors == 0 then return 1 end
return errors
