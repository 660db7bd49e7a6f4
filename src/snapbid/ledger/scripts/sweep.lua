-- include base
-- include now
-- include clock
-- include discrepancies
-- Reads a shard's outboxes, for one sweeper at a time (outbox.py).
--
-- Entries leave an outbox only when they are delivered, so it has as many as {sbN}:posted says.
--
-- ARGV     1 now (epoch ms); 2 token of the sweeper; 3 duration of its lease (hold clock, ms); 4 limit on
--          the entries returned from each outbox; then pairs: a shard, and delivered entries for it, in the
--          order in which they were returned
-- Returns  the time up to which all acknowledged notices are settled (hold clock, ms); 1 if the sweeper has
--          the lease, else 0; then for each outbox with entries: the shard, 1 if these are all, else 0, and
--          the entries
local ENTRY_SIZE = 51
local lease, most = base .. 'o', tonumber(ARGV[4])
for i = 5, #ARGV, 2 do
  local entries, delivered = ARGV[i + 1], {}
  for at = 1, #entries, ENTRY_SIZE do
    delivered[#delivered + 1] = entries:sub(at, at + ENTRY_SIZE - 1)
  end
  local removed = redis.call('SREM', base .. 'o:' .. ARGV[i], unpack(delivered))
  if removed > 0 then
    redis.call('HINCRBY', base .. 'posted', ARGV[i], '-' .. removed)
  end
end
local reply = {digits(watermark()), 0}
local holder, until_ms = (redis.call('GET', lease) or ''):match('^(%x+) (%d+)$')
if holder and holder ~= ARGV[2] and hold_clock() < tonumber(until_ms) then
  return reply
end
redis.call('SET', lease, ARGV[2] .. ' ' .. digits(hold_clock() + ARGV[3]))
reply[2] = 1
for shard = 0, SHARDS - 1 do
  local outbox = base .. 'o:' .. shard
  local many = redis.call('SCARD', outbox)
  local posted = tonumber(redis.call('HGET', base .. 'posted', shard) or 0)
  if posted > many then
    record_discrepancy('outbox ' .. shard, digits(posted), many)
  end
  if posted ~= many then
    redis.call('HSET', base .. 'posted', shard, many)
  end
  if many > 0 then
    reply[#reply + 1] = shard
    reply[#reply + 1] = many <= most and 1 or 0
    reply[#reply + 1] = table.concat(redis.call('SRANDMEMBER', outbox, most))
  end
end
return reply
