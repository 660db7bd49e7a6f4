-- Whether a bid is within the budget and the caps of its campaign (money.lua has the keys).
--
-- Redis counts in 64 bits, Lua only up to 2^53 exactly: small amounts are added up here and carried
-- over at the end of a script, large ones are counted in Redis first, compared as digits, and taken
-- back where they do not fit.
local EXACT = 9007199254740992
local purses = {}

local function read(purse)
  local found = redis.call('HMGET', purse.key, 't', purse.today)
  purse.total, purse.day = tonumber(found[1] or 0), tonumber(found[2] or 0)
  purse.new_day, purse.more = not found[2], 0
end

-- What a campaign has used, after the holds that are due have ended.
local function open_purse(campaign)
  local purse = purses[campaign]
  if purse then
    return purse
  end
  local key, queue = purse_key(campaign), base .. 'x:' .. campaign
  local due = digits(math.floor(watermark() / 1000))
  local ended = redis.call('ZRANGEBYSCORE', queue, '-inf', due)
  if #ended > 0 then
    for _, name in ipairs(ended) do
      local held = redis.call('HGET', key, 'e' .. name)
      if held then
        redis.call('HDEL', key, 'e' .. name)
        redis.call('HINCRBY', key, 't', '-' .. held)
        redis.call('HINCRBY', key, 'd' .. name:match('%d+$'), '-' .. held)
      end
    end
    redis.call('ZREMRANGEBYSCORE', queue, '-inf', due)
  end
  purse = {key = key, queue = queue, today = day_field(now)}
  read(purse)
  purses[campaign] = purse
  return purse
end

local function hold_more(purse, amount)
  local name = purse.ends .. ':' .. purse.today:sub(2)
  if redis.call('HINCRBY', purse.key, 'e' .. name, amount) == tonumber(amount) then
    redis.call('ZADD', purse.queue, purse.ends, name) -- the first of its second
  end
end

local function forget_old_days(purse) -- and holds as they were written before holds had an end
  local today = now / DAY_S
  for _, field in ipairs(redis.call('HKEYS', purse.key)) do
    local letter = field:sub(1, 1)
    if letter == 'h' then
      redis.call('HINCRBY', purse.key, 't', '-' .. redis.call('HGET', purse.key, field))
      redis.call('HDEL', purse.key, field)
    elseif letter == 'd' and tonumber(field:sub(2)) < today - 40 then
      redis.call('HDEL', purse.key, field)
    end
  end
end

-- Carries over what was added up here.
local function close_purse(purse)
  if purse.more == 0 then
    return
  end
  local amount = digits(purse.more)
  if purse.new_day then
    forget_old_days(purse)
  end
  redis.call('HINCRBY', purse.key, 't', amount)
  redis.call('HINCRBY', purse.key, purse.today, amount)
  hold_more(purse, amount)
  purse.more = 0
end

local function close_purses()
  for _, purse in pairs(purses) do
    close_purse(purse)
  end
end

local function at_most(amount, limit) -- of whole numbers; '' is no limit
  return limit == '' or #amount < #limit or #amount == #limit and amount <= limit
    or amount:sub(1, 1) == '-'
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

local function afford_exactly(purse, price, limits, ends)
  close_purse(purse)
  local fits = raise(purse.key, 't', price, limits.total)
  if fits and not raise(purse.key, purse.today, price, limits.day) then
    redis.call('HINCRBY', purse.key, 't', '-' .. price)
    fits = false
  end
  if fits and ends then
    hold_more(purse, price)
  elseif fits then
    redis.call('HINCRBY', purse.key, 't', '-' .. price)
    redis.call('HINCRBY', purse.key, purse.today, '-' .. price)
  end
  read(purse)
  return fits
end

-- Whether the price (digits) is within the limits; where `ends` is given, it is held until then.
local function afford(purse, price, limits, ends)
  if not has_confirmed_budgets() then
    return false
  end
  purse.ends = ends
  local cost = tonumber(price)
  local total, day = purse.total + cost, purse.day + cost
  if total >= EXACT or day >= EXACT then
    return afford_exactly(purse, price, limits, ends)
  end
  if limits.total_number and total > limits.total_number
    or limits.day_number and day > limits.day_number then
    return false
  end
  if ends then
    purse.total, purse.day, purse.more = total, day, purse.more + cost
  end
  return true
end

-- Limits as ledger/limits.py packs them.
local parsed = {}
local function parse_limits(packed)
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
local function within_caps(limits, user)
  local holds, impressions = cap_keys(limits.campaign, user)
  local live = redis.call('ZCOUNT', holds, '(' .. digits(watermark()), '+inf')
  for _, cap in ipairs(limits.caps) do
    local from = '(' .. digits(now_ms - cap[2] * 1000)
    if live >= cap[1] or live + redis.call('ZCOUNT', impressions, from, '+inf') >= cap[1] then
      return false
    end
  end
  return true
end

local function hold_impression(campaign, user, member, hold_s)
  local holds = cap_keys(campaign, user)
  redis.call('ZADD', holds, digits(hold_clock() + hold_s * 1000), member)
  redis.call('ZREMRANGEBYSCORE', holds, '-inf', digits(watermark()))
  redis.call('EXPIRE', holds, hold_s + SPOOL_GIVEN_UP_MS / 1000 + 60) -- the longest it may last
end

-- Holds what the limits ask for: the record with the end of its hold; or none, and the letter.
local function admit(digest, value, packed, hold_s)
  local limits, kinds, size, user = parse_limits(packed), value:byte(KINDS_AT), #value, nil
  if bit.band(kinds, CAPPED) ~= 0 then
    size = size - 20
    user = value:sub(size + 1, size + 16)
    if not within_caps(limits, user) then
      return nil, 'c'
    end
  end
  if limits.has_budget then
    local ends = math.ceil(hold_clock() / 1000 + hold_s)
    local price = value:sub(HEAD_SIZE + 1, size)
    if not afford(open_purse(limits.campaign), price, limits, ends) then
      return nil, 'b'
    end
    value = value:sub(1, HEAD_SIZE) .. struct.pack('<I4', ends) .. value:sub(HEAD_SIZE + 1)
  end
  if user then
    hold_impression(limits.campaign, user, digest .. value:sub(15, 18), hold_s)
  end
  return value
end
