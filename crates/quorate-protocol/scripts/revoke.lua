local seen, of = seen_at(KEYS[1]), {}
if not seen or seen.err or seen[1] < 0 then return seen end
for i = 2, #ARGV do of[ARGV[i]] = true end
for i = #seen == 2 and 2 or 3, #seen, 2 do
  if #ARGV > 1 and not of[seen[i]] then return seen end
end
if ARGV[1] == '' then redis.call('DEL', KEYS[1]) end
if ARGV[1] ~= '' then
  if string.find(ARGV[1], '^revoked:') then
    if string.find(seen[2], '^revoked:') then return seen end
    ARGV[1] = 'revoked:' .. redis.sha1hex(seen[2]) .. string.sub(ARGV[1], 9)
  end
  local kept = redis.pcall('SET', KEYS[1], ARGV[1], 'KEEPTTL')
  if kept.err then redis.call('SET', KEYS[1], ARGV[1], 'PX', math.max(seen[1], 1)) end
end
return seen
