-- Takes back bids that were never answered: the records, if nothing happened to them, and counts.
--
-- KEYS and ARGV as in remember.lua, but ARGV[1] is empty, and ARGV[3] the number of the batch that
-- the bids were in. Nothing happens if it never arrived (it will not be applied any more), or was
-- taken back before.
local base = KEYS[1]:sub(1, -6)
local writer, number = base .. 'w:' .. ARGV[2], tonumber(ARGV[3])
local last = tonumber(redis.call('GET', writer) or 0)
if math.abs(last) > number then
  return 0
end
redis.call('SET', writer, -number, 'EX', 604800)
if last ~= number then
  return 0
end
local records, at, size = ARGV[7], 1, #ARGV[7]
local granule = base .. 'r:' .. ARGV[4] .. ':'
while at <= size do
  local bucket, field, value
  bucket, field, value, at = struct.unpack('<I2c14Bc0', records, at)
  local key = granule .. bucket % 16384
  if redis.call('HGET', key, field) == value then
    redis.call('HDEL', key, field)
  end
end
local counters = base .. 'c:' .. ARGV[6]
for i = 8, #ARGV, 2 do
  redis.call('HINCRBY', counters, ARGV[i], -ARGV[i + 1])
  redis.call('SADD', base .. 'd', ARGV[6] .. ' ' .. ARGV[i])
end
return 1
