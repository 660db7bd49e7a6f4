-- include base
-- include now
-- include counters
-- include segment
-- include time_buckets
-- include records
-- include families
-- include budget
-- include admit
-- Remembers a batch of bids and counts them, in one step.
--
-- ARGV     1 now (epoch ms); 2 writer; 3 number of its batch; 4 duration of holds of money and caps (s);
--          5 how long bids are remembered (s); 6 the bids, each uint8 flags (1 the first of its answer,
--          2 count the answer, 4 it has limits), uint16 bucket, 14 bytes field, uint8 length, record,
--          and with limits uint16 length, limits; 7 the worker's warehouse, then numbers of SSPs that
--          are variants, each with the number of its family: `WAREHOUSE 8=7 9=7`; then for each day: 8
--          the day, 9 the number of counters that its bids raise if all are kept, 10... their names,
--          then the increments
-- Returns  0 if the batch was rolled back before it arrived; else + and, for each refused bid, its index
--          in the batch (from 0) and a letter: b over the budget, h over its SSP's share of a contested
--          budget, c over a cap, s over what sums can hold, t another family of SSPs has a bid on this
--          auction and impression
--
-- A batch in which no bid has limits goes to a variant of this script with LIMITED false.
local WRITER_S = '604800'
current_segment()
local warehouse = ARGV[7]:match('^%S*')
if warehouse ~= '' and owner and owner ~= warehouse then -- adopted (drain/adopt.py): other numbers
  return redis.error_reply('FOREIGN another warehouse has adopted the ledger')
end
local writer, number = base .. 'w:' .. ARGV[2], tonumber(ARGV[3])
local time_bucket, buckets, opened = current_time_bucket()
if not time_bucket then
  time_bucket, buckets = open_time_bucket(tonumber(ARGV[5]))
end
-- The value is the number of the batch and the list of refused bids, still empty.
local last = redis.call('SET', writer, ARGV[3] .. ' ', 'EX', WRITER_S, 'GET')
if last and math.abs(tonumber(last) or last:match('^%-?%d+')) >= number then
  redis.call('SET', writer, last, 'EX', WRITER_S)
  return 0
end
local of_time_bucket = keys_of(time_bucket)

-- Whether a record is of a different family than a bid; counts that as an anomaly.
local function is_anothers(older, value)
  local ssp = struct.unpack('<I4', value)
  if family_of(older.ssp) == family_of(ssp) then
    return false
  end
  count_anomaly(ssp .. ':41', '1')
  return true
end

-- Replaces an earlier bid; returns false if that is another family's.
local function replace(key, field, value)
  local before = redis.call('HGET', key, field)
  local older, record = unpack_record(before), unpack_record(value)
  if is_anothers(older, value) then
    return false
  end
  local number = older.number
  redis.call('HSET', key, field .. string.char(number % REPLACED_KEPT), before)
  record.kinds = record.kinds + REPLACED
  record.number = (number + 1) % 65536
  redis.call('HSET', key, field, pack_record(record))
  if older.ssp == record.ssp then
    count_anomaly(record.ssp .. ':40', '1')
  end
  return true
end

-- Counts bids of creatives that the SSP has recently rejected (reject.lua).
local is_any_rejected = redis.call('EXISTS', base .. 'rejected') == 1
local function count_if_rejected(value)
  local ssp, campaign, _, _, id = struct.unpack(HEAD, value)
  local mark = math.floor(id / ANSWERS)
  if redis.call('HEXISTS', base .. 'rejected', ssp .. ':' .. campaign .. ':' .. mark) == 1 then
    count(date(math.floor(now / DAY_S)), 'q' .. mark .. ':' .. campaign .. ':' .. ssp, '1')
  end
end

-- The previous time bucket is searched as well while its auctions' notices usually come: always would make
-- remembering a sixth dearer. Later, another family's bid on the same ids is kept.
local OVERLAP_S = 300
local of_before, buckets_before
if opened and math.abs(now - opened) < OVERLAP_S or not opened and time_bucket > 1 then
  time_buckets()
  if buckets_of[time_bucket - 1] then
    of_before, buckets_before = keys_of(time_bucket - 1), buckets_of[time_bucket - 1]
  end
end
local function is_taken_before(bucket, field, value)
  local key = bucket_key(of_before, buckets_before, bucket, field)
  local before = redis.call('HGET', key, field)
  return before and is_anothers(unpack_record(before), value)
end

-- A day's sums of money have 64 bits, here and in the warehouse (nano-USD). Bids under 1 USD per impression
-- would overflow them only with more than 4 * 10^9 wins of one SSP a day. The cost of dearer bids, won or
-- not, is summed in {sbN}:dear:DAY (days since 1970) by SSP (s) and campaign (c), and limited: over all
-- shards, and with late wins of earlier days, to less than half of what a sum can hold.
local PLAIN_DIGITS, DEAREST_SUM = 9, 4e18
local function dear_price(value) -- as digits; false for a plain bid
  local last = #value
  if bit.band(value:byte(KINDS_AT), CAPPED) ~= 0 then
    last = last - 20
  end
  return last - HEAD_SIZE > PLAIN_DIGITS and value:sub(HEAD_SIZE + 1, last)
end

local function dear_sums(value) -- their key, and fields
  local ssp, campaign, time = struct.unpack('<I4I4I4', value)
  return base .. 'dear:' .. math.floor(time / DAY_S), {'s' .. ssp, 'c' .. campaign}
end

local function give_back_sums(value, price)
  local key, fields = dear_sums(value)
  for _, field in ipairs(fields) do
    redis.call('HINCRBY', key, field, '-' .. price)
  end
end

local function fits_in_sums(value, price)
  local key, fields = dear_sums(value)
  local days = 2 + math.floor(longest_ttl(tonumber(ARGV[5])) / DAY_S)
  local most, fits = DEAREST_SUM / SHARDS / days, true
  for _, field in ipairs(fields) do
    fits = redis.call('HINCRBY', key, field, price) <= most and fits
  end
  redis.call('EXPIRE', key, 2 * DAY_S)
  if not fits then
    give_back_sums(value, price)
  end
  return fits
end

local refused, less = {}, {} -- refused bids; amounts to subtract from counters, by day and field
local function uncount_refused(value, letter)
  local ssp, campaign, time = struct.unpack('<I4I4I4', value)
  local day = date(math.floor(time / DAY_S))
  local field = letter .. ':' .. (letter == 'b' and ssp or campaign)
  less[day] = less[day] or {}
  less[day][field] = (less[day][field] or 0) + 1
end

local bids, at, size, index, hold_s = ARGV[6], 1, #ARGV[6], 0, nil
local kept, of_none = false, nil -- of an answer: whether any bid is kept; the record to uncount if none is
local undone = {} -- digests and records of bids with limits that were admitted but not kept
while at <= size do
  local start, flags, bucket, field, value, letter, packed = at, nil, nil, nil, nil, nil, nil
  flags, bucket, field, value, at = struct.unpack('<BI2c14Bc0', bids, at)
  if flags % 2 == 1 then
    if of_none and not kept then
      uncount_refused(of_none, 'b')
    end
    kept, of_none = false, nil
  end
  local admitted = value
  local dear = #value > HEAD_SIZE + PLAIN_DIGITS and dear_price(value)
  if dear and not fits_in_sums(value, dear) then
    admitted, letter = nil, 's'
  end
  if LIMITED and flags >= 4 then
    hold_s = hold_s or tonumber(ARGV[4])
    packed, at = struct.unpack('<I2c0', bids, at)
    if admitted then
      admitted, letter = admit(bids, start, value, packed, hold_s)
      if dear and not admitted then
        give_back_sums(value, dear)
      end
    end
  end
  if admitted then
    local key = bucket_key(of_time_bucket, buckets, bucket, field)
    if of_before and is_taken_before(bucket, field, admitted)
      or redis.call('HSETNX', key, field, admitted) == 0 and not replace(key, field, admitted) then
      letter = 't'
      if dear then
        give_back_sums(value, dear)
      end
      if flags >= 4 then
        undone[#undone + 1] = {bids:sub(start + 1, start + 16), admitted}
      end
    end
  end
  if not letter then
    kept = true
    if is_any_rejected then
      count_if_rejected(value)
    end
  else
    refused[#refused + 1] = index .. letter
    uncount_refused(value, 'B')
    if flags % 4 >= 2 then
      of_none = value
    end
  end
  index = index + 1
end
if of_none and not kept then
  uncount_refused(of_none, 'b')
end
if LIMITED and hold_s then
  close_allowances()
  for _, bid in ipairs(undone) do
    undo_admission(bid[1], unpack_record(bid[2]))
  end
end
if #refused > 0 then
  redis.call('SET', writer, ARGV[3] .. ' ' .. table.concat(refused, ' '), 'EX', WRITER_S)
end

local at_day = 8
while ARGV[at_day] do
  local day, many = ARGV[at_day], tonumber(ARGV[at_day + 1])
  raise_counters(day, ARGV, at_day + 2, many, less[day])
  at_day = at_day + 2 + 2 * many
end
write_counts()
return '+' .. table.concat(refused)
