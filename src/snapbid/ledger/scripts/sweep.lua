-- What a shard's outboxes have, for one sweeper at a time (outbox.py).
--
-- ARGV     1 now (epoch ms); 2 token of the sweeper; 3 for how long the outboxes are its own (ms, by
--          the clock of holds, which nobody sets); 4 how many entries it takes of each; then pairs: a
--          shard, and entries for it, as it got them, that are delivered
-- Returns  the time of the hold clock up to which all notices are settled that were acknowledged; 1 if
--          the outboxes are the sweeper's; then of each that has any the shard, 1 if these are all, and
--          the entries
local ENTRY_SIZE = 51
local lease, most = base .. 'o', tonumber(ARGV[4])
for i = 5, #ARGV, 2 do
  local entries, delivered = ARGV[i + 1], {}
  for at = 1, #entries, ENTRY_SIZE do
    delivered[#delivered + 1] = entries:sub(at, at + ENTRY_SIZE - 1)
  end
  redis.call('SREM', base .. 'o:' .. ARGV[i], unpack(delivered))
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
  if many > 0 then
    reply[#reply + 1] = shard
    reply[#reply + 1] = many <= most and 1 or 0
    reply[#reply + 1] = table.concat(redis.call('SRANDMEMBER', outbox, most))
  end
end
return reply
