local function has_readers(key)
  local first = redis.pcall('ZRANGE', key, 0, 0)[1] or ''
  return string.find(first .. ' ', '^' .. string.rep('[0-9a-f]', 40) .. ' ') and redis.call('PTTL', key) >= 0
end
