-- Settles a batch of notices: finds each one's bid and counts it, once; in one step.
--
-- ARGV     1 now (epoch ms); 2 how long bids are remembered (s); 3 the notices, each uint8 kind
--          (1 win, 2 billing, 4 loss; with 32 its URL was altered, with 64 it is another reading of
--          one from a spool, with 128 it comes from a spool), int16 loss reason, uint16
--          bucket, 14 bytes field, uint32 + uint16 when it came (epoch s, ms), and the same when the
--          run of Redis began that its worker had reached last (0 where that is unknown)
-- Returns a letter for each: c counted, l counted late (on the day on which it is settled), d a
-- repeat, u unknown.
--
-- A notice finds its bid by when it came, and counts by when it is settled: one that waited in a spool
-- until the bid's day had closed changes nothing there.
--
-- A notice that comes now counts for the record that is there, whatever the clocks say. One from a
-- spool is meant for the newest of the pair's bids that had been made when it came; of those, where the
-- clock may have been set back since, for the one with the latest time. Where all of them seem to be
-- made later, since clocks differ a little or were set, it is the oldest that is meant; but none where
-- the bids were made after the beginning of a run of Redis of which the notice's worker had not heard:
-- its bid was lost. So it was where another warehouse adopted the ledger, and where a time bucket that may
-- have had it has expired.
-- A notice that was under way for long is taken like one from a spool, where it may be by now, too. It
-- counts for the record that is there if that seems to be of the future: the clock was set back. Where
-- that may have been while it was under way, the sender's time tells, which is not that of Redis then.
local SPOOLED, ALTERED, KINDS, LARGEST_SKEW_MS, LATE_MS = 128, 32, 8, 600000, 5
local ttl_ms = ARGV[2] * 1000
local function remembers(age_ms) -- rare: whether another worker does
  return age_ms <= longest_ttl(tonumber(ARGV[2])) * 1000
end

-- Whether a time bucket has expired that took bids after a time (epoch ms), of those before a record's.
local function is_expired(record, time_ms) -- rare
  local registry, number = base .. 'r', tonumber(record.key:match(':(%d+):%d+$'))
  local time = math.max(now, server_ms() / 1000) -- keys expire by the latter
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

local function find_meant(bucket, field, came_ms, heard_ms) -- rare
  local in_order, oldest, found = is_past_steps(came_ms), nil, nil
  each_record(bucket, field, function(record)
    oldest = record
    local newer = not found or not in_order and record.made_ms > found.made_ms
    if record.made_ms <= came_ms and newer then
      found = record
    end
  end)
  if found or oldest.made_ms > came_ms + LARGEST_SKEW_MS then
    return found
  end
  local made_ms = oldest.made_ms
  if heard_ms == 0 then
    heard_ms = came_ms - UNHEARD_MS
  end
  local since_ms = came_ms - longest_ttl(tonumber(ARGV[2])) * 1000
  if (began_between(heard_ms, made_ms) or is_expired(oldest, since_ms)) and is_past_steps(made_ms) then
    return nil
  end
  return oldest
end

local function is_late(record, came_ms) -- rare
  local time = server_ms()
  return time - came_ms > LATE_MS and record.made_ms <= time
end

local settled_ms = server_ms()
local off_time = math.abs(settled_ms - now_ms) > NOTED_STEP_BACK_MS -- the sender's, as it sent them

local ANOMALY = {l = 10, d = 20, u = 30} -- and the kind: drain/names.py
local OF_ALTERED, LOST_AND_WON, LOST = 50, 60, 5 -- LOST: with what was won or billed, at least this
local anomalies = {} -- by SSP and code: those of a flood of repeats are counted at once
local function note(record, code)
  local name = record.ssp .. ':' .. code
  anomalies[name] = (anomalies[name] or 0) + 1
end
local notices, at, size, letters = ARGV[3], 1, #ARGV[3], {}
while at <= size do
  local start, kind, reason, bucket, field, seconds, ms, run, run_ms = at
  kind, reason, bucket, field, seconds, ms, run, run_ms, at =
    struct.unpack('<Bi2I2c14I4I2I4I2', notices, at)
  local came_ms, heard_ms, spooled = seconds * 1000 + ms, run * 1000 + run_ms, kind >= SPOOLED
  local record, letter = newest_record(bucket, field), 'u'
  if record and spooled then
    record = find_meant(bucket, field, came_ms, heard_ms)
  elseif record and record.made_ms > came_ms then
    came_ms = as_server_time(came_ms)
    if record.made_ms > came_ms and is_late(record, came_ms) then
      record = find_meant(bucket, field, came_ms, heard_ms)
    end
  elseif record and off_time and not is_past_steps(came_ms) then
    record = find_meant(bucket, field, came_ms, heard_ms)
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
