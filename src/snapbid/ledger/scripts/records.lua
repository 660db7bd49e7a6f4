-- Counters, time buckets and records: a part of most scripts, after segment.lua.
--
-- ARGV[1]  the caller's time (epoch ms)
local now_ms = tonumber(ARGV[1])
local now = math.floor(now_ms / 1000)
local SHARDS = 1 -- scripts.py sets it

local function digits(number) -- formats a whole number, however large
  return string.format('%.0f', number)
end

-- Counters ------------------------------------------------------------------------------------

local DAY_S, DAY_OPEN_S = 86400, 7200 -- a day stays open until 02:00 of the next

local dates = {}
local function date(day) -- days since 1970-01-01 to YYYY-MM-DD (proleptic Gregorian)
  local text = dates[day]
  if not text then
    local z = day + 719468
    local era = math.floor(z / 146097)
    local doe = z - era * 146097
    local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524)
      - math.floor(doe / 146096)) / 365)
    local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
    local mp = math.floor((5 * doy + 2) / 153)
    local d = doy - math.floor((153 * mp + 2) / 5) + 1
    local m = mp < 10 and mp + 3 or mp - 9
    text = string.format('%04d-%02d-%02d', yoe + era * 400 + (m <= 2 and 1 or 0), m, d)
    dates[day] = text
  end
  return text
end

-- Lua adds exactly up to this many digits. Redis adds larger sums, which stay below 2^63.
local EXACT_DIGITS, LARGEST_EXACT, MOST_ARGUMENTS = 15, 1e15, 2000

-- Raises `many` counters of a day: `list` has their names from index `from` on, then the increments.
-- `fewer`: amounts to subtract from the increments, by name. Marks the counters as changed, for the drain.
local function raise_counters(day, list, from, many, fewer)
  local key, prefix = counters_of(day)
  for first = from, from + many - 1, MOST_ARGUMENTS do
    local last = math.min(first + MOST_ARGUMENTS, from + many) - 1
    local before = redis.call('HMGET', key, unpack(list, first, last))
    local sums, summed, changed, changes = {}, 0, {}, 0
    for i = first, last do
      local field, sum, by = list[i], before[i - first + 1] or '0', list[i + many]
      if fewer then
        by = by - (fewer[field] or 0)
      end
      if by ~= 0 then
        if #sum <= EXACT_DIGITS then
          summed = summed + 2
          sums[summed - 1], sums[summed] = field, string.format('%d', sum + by)
        else
          redis.pcall('HINCRBY', key, field, by)
        end
        changes = changes + 1
        changed[changes] = prefix .. field
      end
    end
    if summed > 0 then
      redis.call('HSET', key, unpack(sums))
    end
    if changes > 0 then
      redis.call('SADD', base .. 'd', unpack(changed))
    end
  end
end

-- Adds up increments by day and name, so that each counter is written once, at the end of a script.
local counted = {}
local function count(day, field, by) -- day: YYYY-MM-DD; by: digits
  local sums = counted[day]
  if not sums then
    sums = {}
    counted[day] = sums
  end
  local sum = (sums[field] or 0) + by
  if math.abs(sum) >= LARGEST_EXACT then
    local key, prefix = counters_of(day)
    redis.pcall('HINCRBY', key, field, by)
    redis.call('SADD', base .. 'd', prefix .. field)
  else
    sums[field] = sum
  end
end

local function write_counts()
  for day, sums in pairs(counted) do
    local list, many = {}, 0
    for field in pairs(sums) do
      many = many + 1
      list[many] = field
    end
    for i = 1, many do
      list[many + i] = sums[list[i]]
    end
    raise_counters(day, list, 1, many)
  end
end

local function count_anomaly(name, by) -- of an SSP's notices or bids, today (drain/names.py)
  count(date(math.floor(now / DAY_S)), 'n:' .. name, by)
end

-- Time buckets ------------------------------------------------------------------------------------
--
-- Records of about the same time share a time bucket, which expires as a whole. Time buckets are numbered
-- as they are opened, so that their records are found whatever the clock or the TTL becomes. {sbN}:r has
-- for each NUMBER when it expires (epoch s), bNUMBER: its number of buckets, oNUMBER: when it was opened
-- (epoch ms); and `current`: number, opening time, length (s) and buckets of the one that takes records.
-- Redis finds a record by scanning its bucket, so a time bucket with full buckets takes no more records
-- (heartbeat.lua); the next one has twice as many buckets, later ones as many as they need.
-- Buckets get their expiry once the time bucket is ended, a few at each heartbeat: checking for each record
-- whether its bucket is new would add a tenth to the cost of remembering it. Until all have it, xNUMBER
-- is the next bucket to get one.
-- {sbN}:ttl has the TTLs in force, each with the time of its last heartbeat (heartbeat.lua).
local TIME_BUCKET_S, FULL, SAMPLED = 1800, 32, 16 -- FULL: records of a bucket; SAMPLED: buckets
local LEAST_BUCKETS, MOST_BUCKETS, OF_BUCKET = 16384, 1048576, 65536

local function longest_ttl(at_least)
  local longest, all = at_least, redis.call('HGETALL', base .. 'ttl')
  for i = 1, #all, 2 do
    local ttl = tonumber(all[i])
    if ttl > longest and now - all[i + 1] <= ttl + 120 then -- heartbeats renew it once a minute
      longest = ttl
    end
  end
  return longest
end

-- Returns number, buckets, opening time and length (s) of the latest time bucket. Nothing if a heartbeat
-- has ended it, or none was ever opened; raises an error if the ledger is closed.
local function latest_time_bucket()
  local current = redis.call('HGET', base .. 'r', 'current') or ''
  local number, opened, length, buckets = current:match('^(%d+) (%d+) (%d+) (%d+)$')
  if number then
    return tonumber(number), tonumber(buckets), tonumber(opened), tonumber(length)
  end
end

-- Returns number, buckets and opening time of the current time bucket; nothing if its time is over.
local function current_time_bucket()
  local number, buckets, opened, length = latest_time_bucket()
  if number and math.abs(now - opened) < length then -- also false if the clock was set back
    return number, buckets, opened
  end
end

local numbers
local buckets_of = {} -- by time bucket
local function time_buckets() -- newest first
  if not numbers then
    numbers = {}
    local all = redis.call('HGETALL', base .. 'r')
    for i = 1, #all, 2 do
      local name, number = all[i], tonumber(all[i])
      if number then
        numbers[#numbers + 1] = number
      elseif name:sub(1, 1) == 'b' then
        buckets_of[tonumber(name:sub(2))] = tonumber(all[i + 1])
      end
    end
    table.sort(numbers, function(a, b) return a > b end)
  end
  return numbers
end

local function keys_of(time_bucket) -- a format of its buckets' keys: half the cost of joining
  return base .. 'r:' .. time_bucket .. ':%d'
end

local function records_a_bucket(time_bucket, buckets) -- the mean over a sample
  local records = 0
  for bucket = 0, buckets - 1, buckets / SAMPLED do
    records = records + redis.call('HLEN', string.format(keys_of(time_bucket), bucket))
  end
  return records / SAMPLED
end

local function enough_buckets(before) -- for as many records as the previous time bucket took
  local had = buckets_of[before]
  if not had then
    return LEAST_BUCKETS
  end
  local records, buckets = records_a_bucket(before, had), LEAST_BUCKETS
  local needed = records < FULL and records * had / FULL or 2 * had
  while buckets < needed and buckets < MOST_BUCKETS do
    buckets = 2 * buckets
  end
  return buckets
end

local function open_time_bucket(ttl) -- rare: its number, and buckets
  local registry = base .. 'r'
  ttl = longest_ttl(tonumber(ttl))
  for _, number in ipairs(time_buckets()) do
    if tonumber(redis.call('HGET', registry, number)) < now
      and redis.call('HEXISTS', registry, 'x' .. number) == 0 then
      redis.call('HDEL', registry, number, 'o' .. number, 'b' .. number)
    end
  end
  local before = time_buckets()[1] or 0
  local number = before + 1
  local length = math.max(TIME_BUCKET_S, math.floor(ttl / 4)) -- so that few are open at once
  local buckets = enough_buckets(before)
  local expires = digits(now + length + ttl + TIME_BUCKET_S) -- after the last of its records is due
  redis.call('HSET', registry, number, expires, 'o' .. number, digits(now_ms), 'b' .. number, buckets,
    'x' .. number, 0, 'current', string.format('%d %.0f %d %d', number, now, length, buckets))
  return number, buckets
end

-- The key of a record's bucket; with more than OF_BUCKET buckets, bits of the field select one, too.
local function bucket_key(of_time_bucket, buckets, bucket, field)
  return string.format(of_time_bucket, (bucket + OF_BUCKET * string.byte(field)) % buckets)
end

-- Records -------------------------------------------------------------------------------------
--
-- A record is uint32 SSP, uint32 campaign, uint32 + uint16 time (s, ms), uint32 identity (24 bits of
-- the answer, the mark of the creative above them), uint8 kinds. Then, if the bit is set in kinds: 8 the
-- cost is held: uint32 end of the hold (money.lua); 4 a loss was counted: int16 reason; 32 it replaced
-- another record: uint16 how many were replaced before; 64 the loss counts as a rejection of its creative
-- (reject.lua; no data). Then the cost in nano-USD as digits: a plain bid's CPM in micro-USD. Then, if 16
-- is set, the capped user: 16 bytes user, uint32 longest window of the caps (s).
--
-- If a pair of auction and impression gets another bid in the same time bucket, the former record moves to
-- the field of the pair plus one byte: its number modulo REPLACED_KEPT. Only the last REPLACED_KEPT are
-- kept, so that an auction that repeats without end costs neither memory nor time.
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
local function count_rejection(record, by) -- rare
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

-- Returns the replaced record of a pair with a number; nil if it was dropped or rolled back.
local function replaced(key, field, number)
  local name = field .. string.char(number % REPLACED_KEPT)
  local value = redis.call('HGET', key, name)
  local record = value and unpack_record(value, key, name)
  return record and record.number == number and record or nil
end

local function find_record(bucket, field) -- rare
  for _, time_bucket in ipairs(time_buckets()) do
    local key = bucket_key(keys_of(time_bucket), buckets_of[time_bucket], bucket, field)
    local value = redis.call('HGET', key, field)
    if value then
      return unpack_record(value, key, field)
    end
  end
end

-- Returns the pair's newest record, with its key and field; mostly it is in the latest time bucket.
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
-- that is in force in its time bucket; the others were replaced.
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
