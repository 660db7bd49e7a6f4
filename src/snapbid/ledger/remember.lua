-- Remembers a batch of bids and counts them, in one step.
--
-- ARGV     1 now (epoch ms); 2 writer; 3 number of its batch; 4 how long money and caps are held, and
--          5 how long bids are remembered (s); 6 the bids, each uint8 flags (1 the first of its
--          answer, 2 the answer is to be counted, 4 it has limits), uint16 bucket, 14 bytes field,
--          uint8 length, record, and with limits uint16 length, limits; then for each day: 7 the day,
--          8 how many counters its bids raise, if all are kept, 9... their names, and then by how much
-- Returns 0 where the batch was taken back before it arrived, else + and what was not kept, each the
-- place of the bid in the batch (from 0) and a letter: b beyond the budget, c beyond a cap.
--
-- A batch in which no bid has limits is sent to this script without what admit.lua needs.
local WRITER_S = '604800'
local writer, number = base .. 'w:' .. ARGV[2], tonumber(ARGV[3])
local granule, buckets = current_granule()
if not granule then
  granule, buckets = open_granule(tonumber(ARGV[5]))
end
-- With what was refused, which is nothing yet.
local last = redis.call('SET', writer, ARGV[3] .. ' ', 'EX', WRITER_S, 'GET')
if last and math.abs(tonumber(last) or last:match('^%-?%d+')) >= number then
  redis.call('SET', writer, last, 'EX', WRITER_S)
  return 0
end
local of_granule = keys_of(granule)

local function replace(key, field, value) -- rare
  local before = redis.call('HGET', key, field)
  local older, record = unpack_record(before), unpack_record(value)
  local number = older.number
  redis.call('HSET', key, field .. string.char(number % REPLACED_KEPT), before)
  record.kinds = record.kinds + REPLACED
  record.number = (number + 1) % 65536
  redis.call('HSET', key, field, pack_record(record))
  if older.ssp == record.ssp then
    count_anomaly(record.ssp .. ':40', '1')
  end
end

local refused, less = {}, {} -- what was; what is not counted, by day, by field
local function uncount(value, letter) -- rare
  local ssp, campaign, time = struct.unpack('<I4I4I4', value)
  local day = date(math.floor(time / DAY_S))
  local field = letter .. ':' .. (letter == 'b' and ssp or campaign)
  less[day] = less[day] or {}
  less[day][field] = (less[day][field] or 0) + 1
end

local bids, at, size, place, hold_s = ARGV[6], 1, #ARGV[6], 0, nil
local kept, of_none = false, nil -- of an answer: whether any of it is; a record, while none is
while at <= size do
  local start, flags, bucket, field, value, letter, packed = at, nil, nil, nil, nil, nil, nil
  flags, bucket, field, value, at = struct.unpack('<BI2c14Bc0', bids, at)
  if flags % 2 == 1 then
    if of_none and not kept then
      uncount(of_none, 'b')
    end
    kept, of_none = false, nil
  end
  local admitted = value
  if flags >= 4 then
    hold_s = hold_s or tonumber(ARGV[4])
    packed, at = struct.unpack('<I2c0', bids, at)
    admitted, letter = admit(bids, start, value, packed, hold_s)
  end
  if admitted then
    kept = true
    local key = bucket_key(of_granule, buckets, bucket, field)
    if redis.call('HSETNX', key, field, admitted) == 0 then
      replace(key, field, admitted)
    end
  else
    refused[#refused + 1] = place .. letter
    uncount(value, 'B')
    if flags % 4 >= 2 then
      of_none = value
    end
  end
  place = place + 1
end
if of_none and not kept then
  uncount(of_none, 'b')
end
if hold_s then
  close_purses()
end
if #refused > 0 then
  redis.call('SET', writer, ARGV[3] .. ' ' .. table.concat(refused, ' '), 'EX', WRITER_S)
end

local at_day = 7
while ARGV[at_day] do
  local day, many = ARGV[at_day], tonumber(ARGV[at_day + 1])
  raise_counters(day, ARGV, at_day + 2, many, less[day])
  at_day = at_day + 2 + 2 * many
end
write_counts()
return '+' .. table.concat(refused)
