-- include base
-- include now
-- include counters
-- include time_buckets
-- include records
-- include money
-- include impressions
-- include notices
-- Rolls back bids that were never answered: their records, counts and holds.
--
-- Notices counted for such a bid were meant for another bid on the pair of auction and impression, and move
-- there: to the bid that it replaced or, if there is none, to the bid that replaced it. (A spooled notice
-- may seem older than its bid if the clock of the machine that received it is behind.)
--
-- ARGV     1 now (epoch ms); 2 writer; 3 number of the batch; 4 bids as in remember.lua: either the kept
--          ones, with flag 8 and without limits, or the whole batch
-- Changes nothing if the batch never arrived (Redis will refuse it from now on), or was already rolled
-- back.
local writer, number = base .. 'w:' .. ARGV[2], tonumber(ARGV[3])
-- A batch with limits has left a list of its refused bids. That a record is missing does not prove that its
-- bid was refused: it may have expired after a jump of the clock.
local last, knows, refusals = (redis.call('GET', writer) or '0'):match('^(%-?%d+)( ?)(.*)$')
last = tonumber(last)
if math.abs(last) > number then
  return 0
end
time_buckets() -- raises an error if the ledger is closed (closing.py), before anything is written
redis.call('SET', writer, '-' .. ARGV[3], 'EX', '604800')
if last ~= number then
  return 0
end

-- Finds the pair's record with an identity, and its next older and next newer ones.
local function find(bucket, field, id)
  local found, older, newer
  each_record(bucket, field, function(record)
    if found then
      older = record
    elseif record.id == id then
      found = record
    else
      newer = record
    end
    return older
  end)
  return found, older, newer
end

local function remove(record, older)
  if older and record.current and not older.current then -- the older becomes current again
    redis.call('HSET', older.key, record.field, pack_record(older)) -- first, or the key loses its expiry
    redis.call('HDEL', older.key, older.field)
    older.field, older.current = record.field, true
  else
    redis.call('HDEL', record.key, record.field)
  end
end

-- Moves the notices of a record to another. Once the day of the bid is closed, counts stay as they are: no
-- notice may count twice, and the day on which it was counted is not recorded.
local function move_notices(digest, record, other)
  local day = math.floor(record.time / DAY_S)
  local open = is_open(day, now)
  if record.kinds >= REJECTED then
    roll_back_rejection(record)
  end
  if open and bit.band(record.kinds, WIN) ~= 0 then
    pay_back(record)
  end
  for _, kind in ipairs({WIN, BILLING, LOSS}) do
    if bit.band(record.kinds, kind) ~= 0 then
      if open then
        count_notice(date(day), record, kind, '-')
      end
      if open and other then
        settle_record(digest, other, kind, record.reason or 0, now_ms, now)
      elseif other and bit.band(other.kinds, kind) == 0 then
        other.kinds = other.kinds + kind
        other.reason = other.reason or record.reason
        redis.call('HSET', other.key, other.field, pack_record(other))
      end
    end
  end
end

local function uncount(time, field) -- a closed day keeps its counts
  local day = math.floor(time / DAY_S)
  if is_open(day, now) then
    count(date(day), field, '-1')
  end
end

local refused = {}
for index in refusals:gmatch('%d+') do
  refused[tonumber(index)] = true
end
local bids, at, size, index = ARGV[4], 1, #ARGV[4], 0
local is_counted = true -- false while the current answer is still to be uncounted
while at <= size do
  local start, flags, bucket, field, value, limits = at, nil, nil, nil, nil, nil
  flags, bucket, field, value, at = struct.unpack('<BI2c14Bc0', bids, at)
  if flags % 8 >= 4 then
    limits, at = struct.unpack('<I2c0', bids, at)
  end
  if flags % 2 == 1 then
    is_counted = flags % 4 < 2
  end
  local digest, ssp, campaign, time, _, id =
    bids:sub(start + 1, start + 16), struct.unpack(HEAD, value)
  local record, older, newer = find(bucket, field, id)
  if record then
    remove(record, older)
    cancel_hold(record)
    forget_impression(digest, record)
    move_notices(digest, record, older or newer)
  end
  if record or flags >= 8 or (not limits or knows ~= '') and not refused[index] then
    uncount(time, 'B:' .. campaign)
    if not is_counted then
      is_counted = true
      uncount(time, 'b:' .. ssp)
    end
  end
  index = index + 1
end
write_counts()
return 1
