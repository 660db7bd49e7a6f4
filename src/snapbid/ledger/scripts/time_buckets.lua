-- include base
-- include now
-- Records of about the same time share a time bucket, which expires as a whole. Time buckets are numbered in
-- the order of opening, so their records are found however the clock or the TTL changes.
--   {sbN}:r    for each NUMBER when it expires (epoch s), bNUMBER: its number of buckets, oNUMBER: when it
--              was opened (epoch ms), xNUMBER: the next of its buckets to get an expiry, until all have one;
--              and `current`: number, opening time, length (s) and buckets of the one that takes records
--   {sbN}:ttl  the TTLs in force, each with the time of its last heartbeat (heartbeat.lua)
--
-- Redis finds a record by scanning its bucket, so a time bucket with full buckets takes no more records
-- (heartbeat.lua); the next one has twice as many buckets, later ones as many as they need. Buckets get their
-- expiry after the time bucket has ended, a few at each heartbeat: checking for each record whether its
-- bucket is new would make remembering it a tenth dearer.
local TIME_BUCKET_S, FULL, SAMPLED = 1800, 32, 16 -- FULL: records in a bucket; SAMPLED: number of buckets
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

-- Returns number, buckets, opening time and length (s) of the latest time bucket; nothing if a heartbeat
-- has ended it, or none was ever opened. Raises an error if the ledger is closed.
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

local function keys_of(time_bucket) -- a format for its buckets' keys: half the cost of joining
  return base .. 'r:' .. time_bucket .. ':%d'
end

local function records_a_bucket(time_bucket, buckets) -- the mean over a sample
  local records = 0
  for bucket = 0, buckets - 1, buckets / SAMPLED do
    records = records + redis.call('HLEN', string.format(keys_of(time_bucket), bucket))
  end
  return records / SAMPLED
end

local function enough_buckets(before) -- for as many records as the previous time bucket got
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

local function open_time_bucket(ttl) -- returns its number and buckets
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
  local length = math.max(TIME_BUCKET_S, math.floor(ttl / 4)) -- long enough that there are only a few
  local buckets = enough_buckets(before)
  local expires = digits(now + length + ttl + TIME_BUCKET_S) -- after the last of its records is due
  redis.call('HSET', registry, number, expires, 'o' .. number, digits(now_ms), 'b' .. number, buckets,
    'x' .. number, 0, 'current', string.format('%d %.0f %d %d', number, now, length, buckets))
  return number, buckets
end

-- Returns the key of a record's bucket; beyond OF_BUCKET buckets, bits of the field select it, too.
local function bucket_key(of_time_bucket, buckets, bucket, field)
  return string.format(of_time_bucket, (bucket + OF_BUCKET * string.byte(field)) % buckets)
end
