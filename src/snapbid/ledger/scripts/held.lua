-- include base
-- include now
-- include counters
-- include clock
-- include time_buckets
-- include records
-- include money
-- Finds holds that have ended before their bids, for the self-audit, by a page of records in the two newest
-- time buckets. Bids that end in the same second share a hold, so a hold may exceed one page's records.
--
-- ARGV     1 now (epoch ms); 2 the time bucket: 1 the newest, 2 the one before; 3 its first bucket to read
-- Returns  where to continue: time bucket, 0 after the last one, and bucket; then, for each hold that is
--          less than the cost of these records: campaign, and the missing amount
local RECORDS, LOOKED, TIME_BUCKETS, EXACT = 1000, 2000, 2, 9007199254740992
if redis.call('TYPE', base .. 'r').ok ~= 'hash' then -- the ledger is closed, or new
  return {0, 0}
end
local newest, index, bucket = time_buckets(), tonumber(ARGV[2]), tonumber(ARGV[3])
local held, records, looked, clock_s = {}, 0, 0, hold_clock() / 1000

local function add_held(value)
  local record = unpack_record(value)
  local is_own, day = record.ends >= OF_SSP, math.floor(record.time / DAY_S)
  local ends = is_own and record.ends - OF_SSP or record.ends
  if ends > clock_s then -- until then, only its bid may end the hold
    local name = record.campaign .. ' e' .. ends .. ':' .. day .. (is_own and ':' .. record.ssp or '')
    held[name] = (held[name] or 0) + tonumber(record.price)
  end
end

while newest[index] and index <= TIME_BUCKETS and records < RECORDS and looked < LOOKED do
  for _, value in ipairs(redis.call('HVALS', string.format(keys_of(newest[index]), bucket))) do
    records = records + 1
    if bit.band(value:byte(KINDS_AT), HELD) ~= 0 then
      add_held(value)
    end
  end
  looked, bucket = looked + 1, bucket + 1
  if bucket >= (buckets_of[newest[index]] or 0) then
    index, bucket = index + 1, 0
  end
end
local reply = {newest[index] and index <= TIME_BUCKETS and index or 0, bucket}
for name, amount in pairs(held) do
  local campaign, field = name:match('^(%d+) (.*)$')
  local has = tonumber(redis.call('HGET', base .. 'm:' .. campaign, field) or 0)
  if has < amount and amount < EXACT then
    reply[#reply + 1] = campaign
    reply[#reply + 1] = digits(amount - has)
  end
end
return reply
