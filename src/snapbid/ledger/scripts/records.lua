-- include now
-- include counters
-- include time_buckets
-- A record has uint32 SSP, uint32 campaign, uint32 + uint16 time (s, ms), uint32 identity (24 bits of the
-- answer, the mark of the creative above them), uint8 kinds; then, by the bits set in kinds:
--   8   the cost is held: uint32 end of the hold (money.lua)
--   4   a loss was counted: int16 reason
--   32  it replaced another record: uint16 number of records replaced before
--   64  the loss counts as a rejection of its creative: no data (reject.lua)
-- then the cost in nano-USD as digits (a plain bid's CPM in micro-USD); then, if 16 is set, the capped
-- user: 16 bytes user, uint32 longest window of the caps (s).
--
-- If a pair of auction and impression gets another bid in the same time bucket, the former record moves to
-- the field of the pair plus one byte: its number modulo REPLACED_KEPT. Only the last REPLACED_KEPT are
-- kept, so an endlessly repeated auction costs neither memory nor time.
local WIN, BILLING, LOSS, HELD, CAPPED, REPLACED, REJECTED = 1, 2, 4, 8, 16, 32, 64
local HEAD, HEAD_SIZE, KINDS_AT, REPLACED_KEPT = '<I4I4I4I2I4B', 19, 19, 32

local function unpack_record(value, key, field)
  local ssp, campaign, time, ms, id, kinds, at = struct.unpack(HEAD, value)
  local record = {ssp = ssp, campaign = campaign, time = time, made_ms = time * 1000 + ms, id = id,
    kinds = kinds, number = 0, price = '', key = key, field = field, value = value}
  if kinds < LOSS then -- nothing but wins and billings
    record.price = value:sub(at)
    return record
  end
  local last = #value
  if bit.band(kinds, HELD) ~= 0 then
    record.ends, at = struct.unpack('<I4', value, at)
  end
  if bit.band(kinds, LOSS) ~= 0 then
    record.reason, at = struct.unpack('<i2', value, at)
  end
  if bit.band(kinds, REPLACED) ~= 0 then
    record.number, at = struct.unpack('<I2', value, at)
  end
  if bit.band(kinds, CAPPED) ~= 0 then
    last = last - 20
    record.user, record.longest = struct.unpack('<c16I4', value, last + 1)
  end
  record.price = value:sub(at, last)
  return record
end

-- Counts a rejection of a creative, by its mark, campaign and SSP.
local ANSWERS = 16777216
local function count_rejection(record, by)
  local kind = 'r' .. math.floor(record.id / ANSWERS) .. '.' .. record.reason
  count(date(math.floor(now / DAY_S)), kind .. ':' .. record.campaign .. ':' .. record.ssp, by)
end

local function pack_record(record)
  local kinds, value = record.kinds, record.value:sub(1, KINDS_AT - 1)
  if kinds < LOSS then
    return value .. string.char(kinds) .. record.price
  end
  local parts = {value, string.char(kinds)}
  if bit.band(kinds, HELD) ~= 0 then
    parts[#parts + 1] = struct.pack('<I4', record.ends)
  end
  if bit.band(kinds, LOSS) ~= 0 then
    parts[#parts + 1] = struct.pack('<i2', record.reason)
  end
  if bit.band(kinds, REPLACED) ~= 0 then
    parts[#parts + 1] = struct.pack('<I2', record.number)
  end
  parts[#parts + 1] = record.price
  if record.user then
    parts[#parts + 1] = struct.pack('<c16I4', record.user, record.longest)
  end
  return table.concat(parts)
end

-- Returns a pair's replaced record by number; nil if it was dropped or rolled back.
local function replaced(key, field, number)
  local name = field .. string.char(number % REPLACED_KEPT)
  local value = redis.call('HGET', key, name)
  local record = value and unpack_record(value, key, name)
  return record and record.number == number and record or nil
end

local function find_record(bucket, field)
  for _, time_bucket in ipairs(time_buckets()) do
    local key = bucket_key(keys_of(time_bucket), buckets_of[time_bucket], bucket, field)
    local value = redis.call('HGET', key, field)
    if value then
      return unpack_record(value, key, field)
    end
  end
end

-- Returns the pair's newest record, which is usually in the latest time bucket.
local of_latest, latest_buckets
local function newest_record(bucket, field)
  if not of_latest then
    local latest, buckets = latest_time_bucket()
    of_latest, latest_buckets = keys_of(latest or 0), buckets or 1
  end
  local key = bucket_key(of_latest, latest_buckets, bucket, field)
  local value = redis.call('HGET', key, field)
  if value then
    return unpack_record(value, key, field)
  end
  return find_record(bucket, field)
end

-- Calls `use` with the records of a pair, newest first, until it returns true. `current` marks the record
-- in force in its time bucket; the others were replaced.
local function each_record(bucket, field, use)
  for _, time_bucket in ipairs(time_buckets()) do
    local key = bucket_key(keys_of(time_bucket), buckets_of[time_bucket], bucket, field)
    local value = redis.call('HGET', key, field)
    if value then
      local record = unpack_record(value, key, field)
      record.current = true
      local number = record.number
      if use(record) then
        return
      end
      for i = number - 1, math.max(number - REPLACED_KEPT, 0), -1 do
        record = replaced(key, field, i)
        if record and use(record) then
          return
        end
      end
    end
  end
end
