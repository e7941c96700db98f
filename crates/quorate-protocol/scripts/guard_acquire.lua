local fenced = ARGV[3] ~= ''
local n, ours, taken, top = #KEYS - 2, 0, false, 0
if fenced then n = n / 2 end
for i = 1, n do
  local held = held_at(KEYS[i])
  if held == ARGV[1] then ours = ours + 1 elseif held then taken = held break end
end
local refused = ours < n and refusal(taken)
if refused then return refused end
if fenced then
  for i = n + 1, 2 * n do
    local raw = redis.call('GET', KEYS[i])
    if raw then
      local f = #raw <= 16 and string.find(raw, '^%d+$') and tonumber(raw)
      if not f or f > 9007199254740991 then return redis.error_reply('QUORATEFENCE not a number at ' .. KEYS[i]) end
      if f > top then top = f end
    end
  end
  if ours < n or top == 0 then
    top = math.max(top + 1, tonumber(ARGV[3]))
    if top > 9007199254740991 then return redis.error_reply('QUORATEFENCE no number is left at ' .. KEYS[n + 1]) end
  end
end
if ours < n then
  for i = 1, n do redis.call('SET', KEYS[i], ARGV[1], 'NX', 'PX', ARGV[2]) end
end
local number = string.format('%.0f', top)
if fenced then
  for i = n + 1, 2 * n do redis.call('SET', KEYS[i], number) end
end
return answer('granted', number)
