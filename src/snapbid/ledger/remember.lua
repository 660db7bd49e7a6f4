-- Remembers a batch of bids and counts them, in one step.
--
-- KEYS[1]  {sbN}:epoch; all other keys share its hash tag and so its slot:
--          {sbN}:r:GRANULE:BUCKET  records: field = digest of (auction, impression)
--          {sbN}:c:YYYY-MM-DD      counters of a day, they only grow
--          {sbN}:d                 what of them changed since the drain looked
--          {sbN}:w:WRITER          the number of a writer's last batch, so that it can take it back;
--                                  negative once it has been
-- ARGV     1 an epoch, if there is none yet; 2 writer; 3 number of the batch; 4 granule;
--          5 when its records expire (epoch seconds); 6 day; 7 the records, each
--          uint16 bucket, 14 bytes field, uint8 length, value; 8... counter, increment
local base = KEYS[1]:sub(1, -6)
local writer, number = base .. 'w:' .. ARGV[2], tonumber(ARGV[3])
if math.abs(redis.call('GET', writer) or 0) >= number then
  return 0 -- taken back before it arrived
end
redis.call('SET', KEYS[1], ARGV[1], 'NX')
redis.call('SET', writer, number, 'EX', 604800)
local records, at, size = ARGV[7], 1, #ARGV[7]
local granule = base .. 'r:' .. ARGV[4] .. ':'
while at <= size do
  local bucket, field, value
  bucket, field, value, at = struct.unpack('<I2c14Bc0', records, at)
  local key = granule .. bucket % 16384
  if redis.call('HSET', key, field, value) == 1 and redis.call('HLEN', key) == 1 then
    redis.call('EXPIREAT', key, ARGV[5])
  end
end
local counters = base .. 'c:' .. ARGV[6]
for i = 8, #ARGV, 2 do
  redis.call('HINCRBY', counters, ARGV[i], ARGV[i + 1])
  redis.call('SADD', base .. 'd', ARGV[6] .. ' ' .. ARGV[i])
end
return 1
