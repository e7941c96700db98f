end
local n, waiters, keys = tonumber(ARGV[#ARGV]), 0, {}
for i = 1, n do keys[i] = KEYS[i] end
for i = #KEYS, n + 1, -1 do
  if is_waited_for(KEYS[i]) then waiters = i - n end
end
local reply = run(keys, ARGV)
if type(reply) == 'table' and reply.err then return reply end
return {waiters, reply}
