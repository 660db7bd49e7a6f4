-- Counters, time buckets and records: what stands before a script, behind segment.lua.
--
-- ARGV[1]  the caller's time (epoch ms)
local now_ms = tonumber(ARGV[1])
local now = math.floor(now_ms / 1000)
local SHARDS = 1 -- scripts.py sets it

local function digits(number) -- of a whole number, however large
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

-- Lua adds up exactly what has no more digits than this. Redis adds up the rest, which stays below 2^63.
local EXACT_DIGITS, LARGEST_EXACT, MOST_ARGUMENTS = 15, 1e15, 2000

-- Raises counters of a day by what stands behind their names: `many` of them from a place of the list on.
-- With `fewer`, by less, by name. The drain is told that they changed.
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

-- Counters are raised at the end of a script, each once: by day, and by name.
local counted = {}
local function count(day, field, by) -- `day` is YYYY-MM-DD, `by` are digits
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

local function count_anomaly(name, by) -- of an SSP's notices and bids, today (drain/names.py)
  count(date(math.floor(now / DAY_S)), 'n:' .. name, by)
end

-- Time buckets ------------------------------------------------------------------------------------
--
-- Records made at about the same time lie in one time bucket, which expires as a whole. Time buckets are
-- numbered in the order in which they were opened, so that neither a clock nor a TTL that changes
-- hides what is in one: {sbN}:r has for each when it expires (epoch s), as bNUMBER how many buckets it
-- has, as oNUMBER when it was opened (epoch ms), and as `current` number, opening time, length (s) and
-- buckets of the one that takes records.
-- Redis looks for a record among all of its bucket, so a time bucket whose buckets are full takes no more
-- (heartbeat.lua), and the next one has twice as many; later ones have as many as they need.
-- Its buckets get their expiry when it takes no more, a few at each heartbeat: asking for each record
-- whether its bucket is new costs a tenth of what remembering it does. Until all have it, xNUMBER is
-- the next bucket whose turn it is.
-- {sbN}:ttl has the TTLs in force, each with the time at which it was last announced (heartbeat.lua).
local TIME_BUCKET_S, FULL, SAMPLED = 1800, 32, 16 -- records of a bucket; buckets that are asked
local LEAST_BUCKETS, MOST_BUCKETS, OF_BUCKET = 16384, 1048576, 65536

local function longest_ttl(at_least)
  local longest, all = at_least, redis.call('HGETALL', base .. 'ttl')
  for i = 1, #all, 2 do
    local ttl = tonumber(all[i])
    if ttl > longest and now - all[i + 1] <= ttl + 120 then -- it is announced once a minute
      longest = ttl
    end
  end
  return longest
end

-- Number and buckets of the time bucket that was opened last, when that was and how long it takes records
-- (s). None where a heartbeat has ended it, or none ever was; where the ledger is closed, an error.
local function latest_time_bucket()
  local current = redis.call('HGET', base .. 'r', 'current') or ''
  local number, opened, length, buckets = current:match('^(%d+) (%d+) (%d+) (%d+)$')
  if number then
    return tonumber(number), tonumber(buckets), tonumber(opened), tonumber(length)
  end
end

-- The same of the one that takes records now; none where its time is over.
local function current_time_bucket()
  local number, buckets, opened, length = latest_time_bucket()
  if number and math.abs(now - opened) < length then -- and no clock was set
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

local function keys_of(time_bucket) -- of its buckets; formatting costs half of what joining does
  return base .. 'r:' .. time_bucket .. ':%d'
end

local function records_a_bucket(time_bucket, buckets) -- of those that are asked
  local records = 0
  for bucket = 0, buckets - 1, buckets / SAMPLED do
    records = records + redis.call('HLEN', string.format(keys_of(time_bucket), bucket))
  end
  return records / SAMPLED
end

local function enough_buckets(before) -- for as many records as the time bucket before took
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
  local length = math.max(TIME_BUCKET_S, math.floor(ttl / 4)) -- so there are never many
  local buckets = enough_buckets(before)
  local expires = digits(now + length + ttl + TIME_BUCKET_S) -- after the last of its records is due
  redis.call('HSET', registry, number, expires, 'o' .. number, digits(now_ms), 'b' .. number, buckets,
    'x' .. number, 0, 'current', string.format('%d %.0f %d %d', number, now, length, buckets))
  return number, buckets
end

-- Where there are more than OF_BUCKET, some of the field's bits count as well.
local function bucket_key(of_time_bucket, buckets, bucket, field)
  return string.format(of_time_bucket, (bucket + OF_BUCKET * string.byte(field)) % buckets)
end

-- Records -------------------------------------------------------------------------------------
--
-- A record is uint32 SSP, uint32 campaign, uint32 + uint16 time (s, ms), uint32 identity (24 bits of
-- the answer, and above them the mark of the creative), uint8 kinds. Then, as the kinds say: 8 the
-- cost is held: uint32 when the hold ends (money.lua); 4 a loss was counted: int16 reason; 32 it replaced
-- another one: uint16 how many were replaced before; 64 the loss counts as a rejection of its creative
-- (reject.lua). Then its cost in nano-USD as digits: a plain
-- bid's CPM in micro-USD. Then 16 the user is capped: 16 bytes user, uint32 longest window of the
-- caps (s).
--
-- Where a pair of auction and impression gets another bid in the same time bucket, the record that was
-- there moves to the field of the pair and one more byte: its number, the last REPLACED_KEPT being
-- kept, so that an auction that repeats for ever costs neither memory nor time.
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

-- Of a creative, by its mark, campaign and SSP.
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

-- The record of a pair that `number` others had replaced; none where it was dropped or taken back.
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

-- The pair's newest record, with its key and field: mostly in the time bucket that takes records.
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

-- All records of a pair, newest first, until `use` returns true; `current` is the pair's own of its
-- time bucket, the others were replaced.
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
