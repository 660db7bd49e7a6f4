-- include base
-- include now
-- include segment
-- include counters
-- include time_buckets
-- include records
-- include clock
-- include notices
-- Settles a batch of notices: finds the bid of each and counts it once, in one step.
--
-- ARGV     1 now (epoch ms); 2 how long bids are remembered (s); 3 the notices, each uint8 kind (1 win,
--          2 billing, 4 loss; +32 its URL was altered, +64 alternative reading of one from a spool, +128
--          from a spool), int16 loss reason, uint16 bucket, 14 bytes field, uint32 + uint16 time of
--          arrival (epoch s, ms), and likewise the start of the Redis run that its worker had last reached
--          (0: unknown)
-- Returns  a letter for each: c counted, l counted late (on the day of settlement), d duplicate, u unknown
--
-- The time of arrival selects the bid, the time of settlement the day: a notice that was spooled until the
-- bid's day had closed does not change that day.
--
-- A notice that arrives now counts for the current record, whatever the clocks show. One from a spool is
-- meant for the newest of the pair's bids made before it arrived; if the clock may have been set back since,
-- for the one with the latest time. If all bids seem newer, because clocks differ or were set, the oldest is
-- meant. But the notice's bid is lost, and none of these is meant, if they were made after the start of a
-- Redis run that the notice's worker had not yet seen, after another warehouse adopted the ledger, or after
-- the expiry of a time bucket that may have had it; unless the oldest seems newer by so little that clocks
-- explain it, as of a win that came within milliseconds to another machine.
-- A notice that was long in transit is treated like one from a spool, since it may have been spooled as well
-- by now. It counts for the current record if that seems to be in the future: the clock was set back. If
-- that may have happened in transit, the sender's time differs from that of Redis.
local SPOOLED, ALTERED, KINDS, LATE_MS = 128, 32, 8, 5
local ttl_ms = ARGV[2] * 1000
local function remembers(age_ms) -- whether any worker's TTL covers this age
  return age_ms <= longest_ttl(tonumber(ARGV[2])) * 1000
end

-- Whether a time bucket has expired that is older than a record's and took bids after `time_ms`.
local function is_expired(record, time_ms)
  local registry, number = base .. 'r', tonumber(record.key:match(':(%d+):%d+$'))
  local time = math.max(now, server_ms() / 1000) -- keys expire by the server's clock
  while true do
    local opened_ms = redis.call('HGET', registry, 'o' .. number)
    if not opened_ms or tonumber(opened_ms) <= time_ms or number == 1 then
      return false
    end
    number = number - 1
    local expires = redis.call('HGET', registry, number)
    if not expires or tonumber(expires) < time then
      return true
    end
  end
end

local function find_meant(bucket, field, came_ms, known_ms)
  local in_order, oldest, found = is_past_steps(came_ms), nil, nil
  each_record(bucket, field, function(record)
    oldest = record
    local newer = not found or not in_order and record.made_ms > found.made_ms
    if record.made_ms <= came_ms and newer then
      found = record
    end
  end)
  if found then
    return found
  end
  local made_ms = oldest.made_ms
  if made_ms - came_ms <= NOTED_STEP_BACK_MS then
    return oldest
  end
  if known_ms == 0 then
    known_ms = came_ms - UNNOTICED_MS
  end
  local since_ms = came_ms - longest_ttl(tonumber(ARGV[2])) * 1000
  if (began_between(known_ms, made_ms) or is_expired(oldest, since_ms)) and is_past_steps(made_ms) then
    return nil
  end
  return oldest
end

local function is_late(record, came_ms)
  local time = server_ms()
  return time - came_ms > LATE_MS and record.made_ms <= time
end

local settled_ms = server_ms()
local off_time = math.abs(settled_ms - now_ms) > NOTED_STEP_BACK_MS -- of the sender's clock

local ANOMALY = {l = 10, d = 20, u = 30} -- plus the kind: drain/names.py
local OF_ALTERED, LOST_AND_WON, LOST = 50, 60, 5 -- LOST: least kinds of a loss with a win or billing
local anomalies = {} -- by SSP and code; a flood of repeats is written once
local function note(record, code)
  local name = record.ssp .. ':' .. code
  anomalies[name] = (anomalies[name] or 0) + 1
end
local notices, at, size, letters = ARGV[3], 1, #ARGV[3], {}
while at <= size do
  local start, kind, reason, bucket, field, seconds, ms, run, run_ms = at
  kind, reason, bucket, field, seconds, ms, run, run_ms, at =
    struct.unpack('<Bi2I2c14I4I2I4I2', notices, at)
  local came_ms, known_ms, spooled = seconds * 1000 + ms, run * 1000 + run_ms, kind >= SPOOLED
  local record, letter = newest_record(bucket, field), 'u'
  if record and spooled then
    record = find_meant(bucket, field, came_ms, known_ms)
  elseif record and record.made_ms > came_ms then
    came_ms = as_server_time(came_ms)
    if record.made_ms > came_ms and is_late(record, came_ms) then
      record = find_meant(bucket, field, came_ms, known_ms)
    end
  elseif record and off_time and not is_past_steps(came_ms) then
    record = find_meant(bucket, field, came_ms, known_ms)
  end
  local age_ms = record and came_ms - record.made_ms
  if record and (age_ms <= ttl_ms or remembers(age_ms)) then
    letter = settle_record(notices:sub(start + 3, start + 18), record, kind % KINDS, reason,
      came_ms, settled_ms / 1000)
    if kind % 64 >= ALTERED then
      note(record, OF_ALTERED + kind % KINDS)
    end
    if letter ~= 'd' and record.kinds % KINDS >= LOST and (record.kinds - kind) % KINDS < LOST then
      note(record, LOST_AND_WON)
    end
  end
  if record and letter ~= 'c' then
    note(record, ANOMALY[letter] + kind % KINDS)
  end
  letters[#letters + 1] = letter
end
for name, times in pairs(anomalies) do
  count_anomaly(name, digits(times))
end
write_counts()
return table.concat(letters)
