-- Money and caps of campaigns (contract 3, Budgets), and how a batch names its counters: what stands
-- before each script, behind segment.lua.
--
-- All keys share the hash tag of KEYS[1], {sbN}:epoch; amounts are nano-USD, so that a bid costs
-- exactly its CPM in micro-USD. DAY counts from 1970-01-01, SECOND is epoch time.
--   {sbN}:m:CAMPAIGN        t: used in total, by spend and live holds; dDAY: used by that day's bids;
--                           hSECOND: held by bids made then; x: the last second whose holds ended
--   {sbN}:q:CAMPAIGN        the seconds that have holds, in the order in which they came
--   {sbN}:fh:CAMPAIGN:USER  a user's holds: member = place and time of the bid, score = when made
--   {sbN}:fc:CAMPAIGN:USER  a user's impressions: score = when
--
-- Redis counts in 64 bits, Lua only up to 2^53 exactly: small amounts are added up here and carried
-- over at the end of a script, large ones are counted in Redis first, compared as digits, and taken
-- back where they do not fit.
local HELD, CAPPED, EXACT, DAY_S = 8, 16, 9007199254740992, 86400
local purses, touched = {}, {}

-- The counters that a batch changes: each uint8 letter, uint32 number, uint32 increment.
local function each_counter(packed, use)
  local at, size = 1, #packed
  while at <= size do
    local letter, whose, by
    letter, whose, by, at = struct.unpack('<c1I4I4', packed, at)
    use(letter .. ':' .. whose, by)
  end
end

local function add(key, field, digits) -- nothing is done beyond 64 bits
  return type(redis.pcall('HINCRBY', key, field, digits)) == 'number'
end

local function day_field(time)
  return 'd' .. math.floor(time / DAY_S)
end

local function lower_hold(key, time, price) -- of a hold that is known to live
  if redis.call('HINCRBY', key, 'h' .. time, '-' .. price) <= 0 then
    redis.call('HDEL', key, 'h' .. time)
  end
end

local function lives(key, time)
  return redis.call('HEXISTS', key, 'h' .. time) == 1
end

-- The hold of a bid ends without a spend; nothing happens if it has ended by itself.
local function release(campaign, time, price)
  local key = base .. 'm:' .. campaign
  if lives(key, time) then
    lower_hold(key, time, price)
    redis.call('HINCRBY', key, 't', '-' .. price)
    redis.call('HINCRBY', key, day_field(time), '-' .. price)
  end
end

-- A win: the hold, if it lives, is spend from now on; else the spend is added.
local function spend(campaign, time, price, held)
  local key = base .. 'm:' .. campaign
  if held and lives(key, time) then
    lower_hold(key, time, price)
  elseif add(key, 't', price) then
    add(key, day_field(time), price)
  end
end

local function read(purse)
  local found = redis.call('HMGET', purse.key, 't', purse.today, 'x')
  purse.total, purse.day = tonumber(found[1] or 0), tonumber(found[2] or 0)
  purse.ended, purse.new_day = tonumber(found[3] or 0), not found[2]
  purse.more = 0
end

-- What a campaign has used, after the holds that are due have ended.
local function open_purse(campaign, now, hold_s)
  local purse = purses[campaign]
  if purse then
    return purse
  end
  local key, queue = base .. 'm:' .. campaign, base .. 'q:' .. campaign
  local second = redis.call('LINDEX', queue, 0)
  while second and second + hold_s <= now do
    redis.call('LPOP', queue)
    local held = redis.call('HGET', key, 'h' .. second)
    if held then
      redis.call('HDEL', key, 'h' .. second)
      redis.call('HINCRBY', key, 't', '-' .. held)
      redis.call('HINCRBY', key, day_field(second), '-' .. held)
    end
    if tonumber(second) > tonumber(redis.call('HGET', key, 'x') or 0) then
      redis.call('HSET', key, 'x', second)
    end
    second = redis.call('LINDEX', queue, 0)
  end
  purse = {key = key, queue = queue, now = now, today = day_field(now)}
  read(purse)
  purses[campaign] = purse
  return purse
end

local function hold_more(purse, digits)
  local sum = redis.call('HINCRBY', purse.key, 'h' .. purse.now, digits)
  if sum == tonumber(digits) then -- the first of its second
    redis.call('RPUSH', purse.queue, purse.now)
  end
end

-- Carries over what was added up here.
local function close_purse(purse)
  if purse.more == 0 then
    return
  end
  local digits = string.format('%.0f', purse.more)
  if purse.new_day then -- days that nobody asks for any more
    for _, field in ipairs(redis.call('HKEYS', purse.key)) do
      if field:sub(1, 1) == 'd' and tonumber(field:sub(2)) < purse.now / DAY_S - 40 then
        redis.call('HDEL', purse.key, field)
      end
    end
  end
  redis.call('HINCRBY', purse.key, 't', digits)
  redis.call('HINCRBY', purse.key, purse.today, digits)
  hold_more(purse, digits)
  purse.more = 0
end

local function close_purses()
  for _, purse in pairs(purses) do
    close_purse(purse)
  end
end

local function at_most(digits, limit) -- of whole numbers; '' is no limit
  return limit == '' or #digits < #limit or #digits == #limit and digits <= limit
    or digits:sub(1, 1) == '-'
end

local function raise(key, field, price, limit) -- to at most the limit, in Redis
  if not add(key, field, price) then
    return false
  end
  if at_most(redis.call('HGET', key, field), limit) then
    return true
  end
  redis.call('HINCRBY', key, field, '-' .. price)
  return false
end

local function afford_exactly(purse, price, limits, keep)
  close_purse(purse)
  local fits = raise(purse.key, 't', price, limits.total)
  if fits and not raise(purse.key, purse.today, price, limits.day) then
    redis.call('HINCRBY', purse.key, 't', '-' .. price)
    fits = false
  end
  if fits and keep then
    hold_more(purse, price)
  elseif fits then
    redis.call('HINCRBY', purse.key, 't', '-' .. price)
    redis.call('HINCRBY', purse.key, purse.today, '-' .. price)
  end
  read(purse)
  return fits
end

-- Whether the price (digits) is within the limits; it is held then, where `keep` is true.
local function afford(purse, price, limits, keep)
  if not has_confirmed_budgets() then
    return false
  end
  if purse.now <= purse.ended then
    return false -- a clock that is slow by more than a hold
  end
  local cost = tonumber(price)
  local total, day = purse.total + cost, purse.day + cost
  if total >= EXACT or day >= EXACT then
    return afford_exactly(purse, price, limits, keep)
  end
  if limits.total_number and total > limits.total_number
    or limits.day_number and day > limits.day_number then
    return false
  end
  if keep then
    purse.total, purse.day, purse.more = total, day, purse.more + cost
  end
  return true
end

-- Limits as ledger/limits.py packs them.
local parsed = {}
local function parse(packed)
  local limits = parsed[packed]
  if not limits then
    local campaign, day, total, caps, at = struct.unpack('<I4Bc0Bc0B', packed)
    limits = {campaign = campaign, day = day, total = total, caps = {}}
    limits.day_number, limits.total_number = tonumber(day), tonumber(total)
    limits.has_budget = day ~= '' or total ~= ''
    for i = 1, caps do
      local impressions, seconds
      impressions, seconds, at = struct.unpack('<I4I4', packed, at)
      limits.caps[i] = {impressions, seconds}
    end
    parsed[packed] = limits
  end
  return limits
end

-- Whether one impression more for the user stays within every cap.
local function within_caps(limits, user, now_ms, hold_s)
  local name = limits.campaign .. ':' .. user
  local live = redis.call('ZCOUNT', base .. 'fh:' .. name, '(' .. now_ms - hold_s * 1000, '+inf')
  for _, cap in ipairs(limits.caps) do
    local from = '(' .. string.format('%.0f', now_ms - cap[2] * 1000)
    if live >= cap[1]
      or live + redis.call('ZCOUNT', base .. 'fc:' .. name, from, '+inf') >= cap[1] then
      return false
    end
  end
  return true
end
