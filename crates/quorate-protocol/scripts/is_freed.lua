local function is_freed(held, token)
  if held == token or type(held) ~= 'string' then return held == token end
  return string.find(held, '^revoked:') and string.sub(held, 9, 48) == redis.sha1hex(token)
end
