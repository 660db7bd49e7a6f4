-- Takes back bids that were never answered: the records, if nothing happened to them, their holds,
-- and counts.
--
-- KEYS and ARGV as in remember.lua, but ARGV[1] is empty, ARGV[3] the number of the batch that the
-- bids were in, and ARGV[11] the letters of the answers with limits where they are known: those of
-- remember.lua, or r for a kept bid whose record belongs to another answer by now. Nothing happens
-- if the batch never arrived (it will not be applied any more), or was taken back before.
local writer, number = base .. 'w:' .. ARGV[2], tonumber(ARGV[3])
local last = tonumber(redis.call('GET', writer) or 0)
if math.abs(last) > number then
  return 0
end
redis.call('SET', writer, -number, 'EX', 604800)
if last ~= number then
  return 0
end
local granule = base .. 'r:' .. ARGV[4] .. ':'

local function remove(bucket, field, value) -- false where something happened to it
  local key = granule .. bucket % 16384
  if redis.call('HGET', key, field) == value then
    redis.call('HDEL', key, field)
    return true
  end
  return false
end

local records, at, size = ARGV[7], 1, #ARGV[7]
while at <= size do
  local bucket, field, value
  bucket, field, value, at = struct.unpack('<I2c14Bc0', records, at)
  remove(bucket, field, value)
end

local counters = counters_of(ARGV[6])
local function uncount(field, by)
  redis.call('HINCRBY', counters, field, -by)
  name_changed(ARGV[6], field)
end

local function let_go(place, value)
  local campaign, time, kinds = struct.unpack('<I4I4B', value, 5)
  local price = value:sub(14)
  if bit.band(kinds, CAPPED) ~= 0 then
    price = value:sub(14, -21)
    redis.call('ZREM', base .. 'fh:' .. campaign .. ':' .. value:sub(-20, -5),
      place .. value:sub(9, 12))
  end
  if bit.band(kinds, HELD) ~= 0 then
    release(campaign, time, price)
  end
end

local letters = ARGV[11]
if letters == '' then
  letters = redis.call('GET', base .. 'v:' .. ARGV[2]) or ''
end
local answers, place_of_letter = ARGV[8], 0
at, size = 1, #ARGV[8]
while at <= size do
  local ssp, counted, bids
  ssp, counted, bids, at = struct.unpack('<I4BI2', answers, at)
  for _ = 1, bids do
    local start, bucket, field, value, packed = at, nil, nil, nil, nil
    bucket, field, value, packed, at = struct.unpack('<I2c14Bc0I2c0', answers, at)
    place_of_letter = place_of_letter + 1
    local letter = letters:sub(place_of_letter, place_of_letter)
    if letter == 'k' or letter == 'r' then
      if letter == 'r' or remove(bucket, field, value) then
        let_go(answers:sub(start, start + 15), value)
      end
      uncount('B:' .. struct.unpack('<I4', value, 5), 1)
      if counted == 0 then
        counted = 1
        uncount('b:' .. ssp, 1)
      end
    end
  end
end
each_counter(ARGV[12], uncount)
return 1
