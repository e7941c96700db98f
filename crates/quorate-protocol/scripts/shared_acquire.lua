for i = 1, #KEYS do
  local held = taken(KEYS[i])
  if held then return held end
end
for i = 1, #KEYS do put(KEYS[i], not is_ours(KEYS[i]) and now + ARGV[2]) end
return 1
