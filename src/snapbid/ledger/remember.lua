-- Remembers a batch of bids and counts them, in one step.
--
-- KEYS[1]  {sbN}:epoch; all other keys share its hash tag and so its slot (see limits.lua):
--          {sbN}:r:GRANULE:BUCKET  records: field = digest of (auction, impression)
--          {sbN}:c:SEGMENT:YYYY-MM-DD  counters of a day (segment.lua)
--          {sbN}:d                 what of them changed since the drain looked
--          {sbN}:w:WRITER          the number of a writer's last batch, so that it can take it back;
--                                  negative once it has been
--          {sbN}:v:WRITER          the verdicts of that batch, if it had any
-- ARGV     1 an epoch, if there is none yet; 2 writer; 3 number of the batch; 4 granule;
--          5 when its records expire (epoch seconds); 6 day; 7 the records of bids without limits,
--          each uint16 bucket, 14 bytes field, uint8 length, value; 8 answers with limits, each
--          uint32 SSP, uint8 1 if counted already, uint16 number of bids, and each bid a record
--          followed by uint16 length, limits (empty: none); 9 now (epoch ms); 10 how long money and
--          caps are held (s); 11 nothing; 12 the counters
-- Returns 0 where the batch was taken back before it arrived, else + and a letter for each bid of
-- the answers with limits: k kept, b beyond the budget, c beyond a cap.
local writer, number = base .. 'w:' .. ARGV[2], tonumber(ARGV[3])
if math.abs(redis.call('GET', writer) or 0) >= number then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'NX')
redis.call('SET', writer, number, 'EX', 604800)
local granule = base .. 'r:' .. ARGV[4] .. ':'

local function store(bucket, field, value)
  local key = granule .. bucket % 16384
  if redis.call('HSET', key, field, value) == 1 and redis.call('HLEN', key) == 1 then
    redis.call('EXPIREAT', key, ARGV[5])
  end
end

local records, at, size = ARGV[7], 1, #ARGV[7]
while at <= size do
  local bucket, field, value
  bucket, field, value, at = struct.unpack('<I2c14Bc0', records, at)
  store(bucket, field, value)
end

local counters = counters_of(ARGV[6])
local function count(field, by)
  redis.call('HINCRBY', counters, field, by)
  name_changed(ARGV[6], field)
end

local now_ms, hold_s = tonumber(ARGV[9]), tonumber(ARGV[10])
local now = math.floor(now_ms / 1000)

local function admit(place, value, packed)
  local limits, kinds, price, user = parse(packed), value:byte(13), value:sub(14), nil
  if bit.band(kinds, CAPPED) ~= 0 then
    price, user = value:sub(14, -21), value:sub(-20, -5)
    if not within_caps(limits, user, now_ms, hold_s) then
      return 'c'
    end
  end
  if limits.has_budget
    and not afford(open_purse(limits.campaign, now, hold_s), price, limits, true) then
    return 'b'
  end
  if user then
    local key = base .. 'fh:' .. limits.campaign .. ':' .. user
    redis.call('ZADD', key, now_ms, place .. value:sub(9, 12))
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now_ms - hold_s * 1000)
    redis.call('EXPIRE', key, hold_s + 1)
  end
  return 'k'
end

local answers, letters, more = ARGV[8], {}, {}
at, size = 1, #ARGV[8]
while at <= size do
  local ssp, counted, bids
  ssp, counted, bids, at = struct.unpack('<I4BI2', answers, at)
  for _ = 1, bids do
    local start, bucket, field, value, packed = at, nil, nil, nil, nil
    bucket, field, value, packed, at = struct.unpack('<I2c14Bc0I2c0', answers, at)
    local letter = packed == '' and 'k' or admit(answers:sub(start, start + 15), value, packed)
    letters[#letters + 1] = letter
    if letter == 'k' then
      store(bucket, field, value)
      local name = 'B:' .. struct.unpack('<I4', value, 5)
      more[name] = (more[name] or 0) + 1
      if counted == 0 then
        counted, name = 1, 'b:' .. ssp
        more[name] = (more[name] or 0) + 1
      end
    end
  end
end
close_purses()
for field, by in pairs(more) do
  count(field, by)
end
each_counter(ARGV[12], count)
letters = table.concat(letters)
if letters ~= '' then
  redis.call('SET', base .. 'v:' .. ARGV[2], letters, 'EX', 604800)
end
return '+' .. letters
