local function is_freed(held)
  if held == ARGV[1] or type(held) ~= 'string' then return held == ARGV[1] end
  return string.find(held, '^revoked:') and string.sub(held, 9, 48) == redis.sha1hex(ARGV[1])
end
