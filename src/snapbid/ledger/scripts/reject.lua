-- include base
-- include now
-- include counters
-- include records
-- Counts a loss as a rejection of the bid's creative by its SSP (contract 11).
--
-- From a creative's first rejection until a day after the last in this shard, its bids to that SSP are
-- counted, too (remember.lua): the drain compares both counts. So the first rejection does not count, nor
-- do those of bids made before it.
--   {sbN}:rejected          SSP:CAMPAIGN:MARK of these creatives -> since when (epoch ms)
--
-- ARGV     1 now (epoch ms); 2 auction and impression: uint16 bucket, 14 bytes field; 3 loss reason;
--          4 numbers of the SSPs whose bids the sender may not reject, each between spaces
-- Returns  1 if it counts, else 0
local REJECTED_FOR_S, MOST_REJECTED = '86400', 1000
local record = newest_record(struct.unpack('<I2c14', ARGV[2]))
if not record or bit.band(record.kinds, WIN + BILLING + LOSS + REJECTED) ~= LOSS
  or record.reason ~= tonumber(ARGV[3]) or record.id < ANSWERS
  or ARGV[4]:find(' ' .. record.ssp .. ' ', 1, true) then
  return 0
end
local rejected = base .. 'rejected'
local name = record.ssp .. ':' .. record.campaign .. ':' .. math.floor(record.id / ANSWERS)
local since = redis.call('HGET', rejected, name)
if not since and redis.call('HLEN', rejected) < MOST_REJECTED then
  redis.call('HSET', rejected, name, digits(now_ms))
end
redis.call('EXPIRE', rejected, REJECTED_FOR_S)
if not since or record.made_ms <= tonumber(since) then
  return 0
end
record.kinds = record.kinds + REJECTED
redis.call('HSET', record.key, record.field, pack_record(record))
count_rejection(record, '1')
write_counts()
return 1
