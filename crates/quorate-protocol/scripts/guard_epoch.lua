local guards, epoch, quarantine = 2, KEYS[#KEYS - 1], KEYS[#KEYS]
local function info(section)
  local text = redis.pcall('INFO', section)
  if type(text) == 'string' then return text end
  return nil, redis.error_reply('QUORATEINFO the restart guard needs INFO: ' .. (type(text) == 'table' and text.err or 'no text'))
end
local server, err = info('server')
if not server then return err end
local run = string.match(server, 'run_id:(%w+)')
local replication, err = info('replication')
if not replication then return err end
local replid, offset = string.match(replication, 'master_replid2:(%w+)'), string.match(replication, 'second_repl_offset:(%-?%d+)')
if not run or not replid or not offset then
  return redis.error_reply('QUORATEIDENTITY the node does not tell its run_id, master_replid2 and second_repl_offset')
end
local found, known = redis.call('GET', epoch), table.concat({run, replid, offset, ARGV[4]}, ':')
if found ~= known then
  local wait = tonumber(ARGV[4])
  if found then
    local max = string.match(found, '^%w[%w:-]*:(%d+)$')
    if not max then return redis.error_reply('QUORATEMAXTTL no epoch at ' .. epoch) end
    if max ~= ARGV[4] then return redis.error_reply('QUORATEMAXTTL its max_ttl is ' .. max .. ' ms, not ' .. ARGV[4] .. ' ms') end
  elseif ARGV[5] == 'soft' then
    local uptime = tonumber(string.match(server, 'uptime_in_seconds:(%d+)') or 0)
    wait = wait + 1000 - 1000 * uptime
  end
  local memory, err = info('memory')
  if not memory then return err end
  local most, policy = string.match(memory, 'maxmemory:(%d+)'), string.match(memory, 'maxmemory_policy:([%w-]+)')
  if not most or not policy then return redis.error_reply('QUORATEEVICTS the node does not tell its maxmemory-policy') end
  if most ~= '0' and policy ~= 'noeviction' then
    return redis.error_reply('QUORATEEVICTS the node may evict keys: its maxmemory is ' .. most .. ' and its maxmemory-policy ' .. policy)
  end
  local left = redis.call('PTTL', quarantine)
  if wait > 0 and left ~= -1 and left < wait then redis.call('SET', quarantine, run, 'PX', string.format('%.0f', wait)) end
  redis.call('SET', epoch, known)
end
local function answer(word, number) return {word, number, run} end
local function refusal(taken)
  local left = redis.call('PTTL', quarantine)
  if left == -1 then left = tonumber(ARGV[4]) end
  if left >= 0 then return answer('quarantined', string.format('%.0f', left)) end
  return taken and answer('refused', taken)
end
