local n = #KEYS / 2
for i = 1, n do
  if held_at(KEYS[i]) ~= ARGV[1] then return 0 end
end
for i = n + 1, #KEYS do
  local raw = redis.call('GET', KEYS[i])
  if raw then
    local f = #raw <= 16 and string.find(raw, '^%d+$') and tonumber(raw)
    if not f or f > 9007199254740991 then return redis.error_reply('QUORATEFENCE not a number at ' .. KEYS[i]) end
    if f > tonumber(ARGV[2]) then return 0 end
  end
end
for i = n + 1, #KEYS do redis.call('SET', KEYS[i], ARGV[2]) end
return 1
