local n, ours, held = #KEYS - guards, 0, false
for i = 1, n do
  held = taken(KEYS[i])
  if held then break end
  if is_ours(KEYS[i]) then ours = ours + 1 end
end
local refused = ours < n and refusal(held)
if refused then return refused end
for i = 1, n do put(KEYS[i], not is_ours(KEYS[i]) and now + ARGV[2]) end
return answer('granted', '0')
