-- Settles a batch of notices: is the bid known, was this counted already, count it; in one step.
--
-- KEYS[1]  {sbN}:epoch, see remember.lua and limits.lua
-- ARGV     1 now (epoch seconds); 2 how long a bid is remembered (s); 3 length of a granule (s);
--          4 the notices, each uint8 kind (1 win, 2 billing, 4 loss), int16 loss reason,
--          uint16 bucket, 14 bytes field; 5 now (epoch ms); 6 how long money and caps are held (s)
-- Returns a string with one letter a notice: c counted, l counted late (on the day of the notice),
-- d a repeat, u unknown.
--
-- A record is uint32 SSP, uint32 campaign, uint32 time, uint8 kinds counted (with them 8: its cost
-- is held, 16: its user is capped), then its CPM in micro-USD as digits, then for a capped user 16
-- bytes user and uint32 longest window of the caps (s).
local now, ttl, length = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local notices, at, size = ARGV[4], 1, #ARGV[4]
local newest, oldest = math.floor(now / length) + 1, math.floor((now - ttl) / length)
local DAY, OPEN = 86400, 7200 -- a day closes at 02:00 of the next

local function date(day) -- days since 1970-01-01 to YYYY-MM-DD (proleptic Gregorian)
  local z = day + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524)
    - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local d = doy - math.floor((153 * mp + 2) / 5) + 1
  local m = mp < 10 and mp + 3 or mp - 9
  return string.format('%04d-%02d-%02d', yoe + era * 400 + (m <= 2 and 1 or 0), m, d)
end

local function count(day, field, by)
  redis.call('HINCRBY', counters_of(day), field, by)
  name_changed(day, field)
end

local function sum(day, field, price) -- money beyond 64 bits stays where it is; the count goes on
  redis.pcall('HINCRBY', counters_of(day), field, price)
  name_changed(day, field)
end

local now_ms, hold_s = tonumber(ARGV[5]), tonumber(ARGV[6])

-- A capped user's hold becomes an impression with a win or a billing, and ends with a loss. The time
-- of an impression is that of the billing, where there is one.
local function settle_cap(kind, counted, campaign, user, longest, member)
  local name = campaign .. ':' .. user
  if kind ~= 4 then
    redis.call('ZREM', base .. 'fh:' .. name, member)
    if kind == 2 or bit.band(counted, 2) == 0 then
      local key = base .. 'fc:' .. name
      redis.call('ZADD', key, now_ms, member)
      redis.call('ZREMRANGEBYSCORE', key, '-inf',
        string.format('%.0f', now_ms - longest * 1000))
      redis.call('EXPIRE', key, string.format('%.0f', longest + hold_s + 1))
    end
  elseif bit.band(counted, 3) == 0 then
    redis.call('ZREM', base .. 'fh:' .. name, member)
  end
end

local function settle(kind, reason, bucket, field, place)
  for granule = newest, oldest, -1 do
    local key = base .. 'r:' .. granule .. ':' .. bucket % 16384
    local record = redis.call('HGET', key, field)
    if record then
      local ssp, campaign, time, counted = struct.unpack('<I4I4I4B', record)
      if now - time > ttl then return 'u' end
      if bit.band(counted, kind) ~= 0 then return 'd' end
      local held, price, rest = bit.band(counted, HELD) ~= 0, record:sub(14), ''
      if bit.band(counted, CAPPED) ~= 0 then
        price, rest = record:sub(14, -21), record:sub(-20)
        settle_cap(kind, counted, campaign, rest:sub(1, 16), struct.unpack('<I4', rest, 17),
          place .. record:sub(9, 12))
      end
      if kind == 1 then
        spend(campaign, time, price, held)
      elseif kind == 4 and held then
        release(campaign, time, price)
      end
      local kinds = bit.bor(counted, kind)
      if held and kind ~= 2 then
        kinds = kinds - HELD
      end
      redis.call('HSET', key, field,
        struct.pack('<I4I4I4B', ssp, campaign, time, kinds) .. price .. rest)
      local day, late = math.floor(time / DAY), false
      if now >= (day + 1) * DAY + OPEN then
        day, late = math.floor(now / DAY), true
      end
      day = date(day)
      if kind == 1 then
        count(day, 'w:' .. ssp, 1)
        sum(day, 'p:' .. ssp, price)
        count(day, 'W:' .. campaign, 1)
        sum(day, 'P:' .. campaign, price)
      elseif kind == 2 then
        count(day, 'i:' .. ssp, 1)
        count(day, 'I:' .. campaign, 1)
      else
        count(day, 'l:' .. ssp .. ':' .. reason, 1)
      end
      return late and 'l' or 'c'
    end
  end
  return 'u'
end

local letters = {}
while at <= size do
  local start, kind, reason, bucket, field = at, nil, nil, nil, nil
  kind, reason, bucket, field, at = struct.unpack('<Bi2I2c14', notices, at)
  letters[#letters + 1] = settle(kind, reason, bucket, field, notices:sub(start + 3, start + 18))
end
return table.concat(letters)
