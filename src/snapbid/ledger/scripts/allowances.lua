-- include base
-- include now
-- include counters
-- include clock
-- include money
-- include families
-- The use of campaigns' budgets, and whether a cost is within their limits (money.lua has the keys).
--
-- Redis counts in 64 bits; Lua is exact only up to 2^53. Small amounts are added up here and written at
-- the end of a script; large ones are first counted in Redis, compared as digits, and subtracted again
-- if they do not fit.
local EXACT = 9007199254740992
local budget_day = math.floor(now / DAY_S) -- whose budget is used
local day_field = 'd' .. budget_day
local allowances = {}

-- Sets the end of the holds made by this script.
local ends, packed_ends, packed_own_ends, hold_name, hold_field
local function hold_for(hold_s)
  if not ends then
    local second = math.ceil(hold_clock() / 1000 + hold_s)
    ends, packed_ends = digits(second), struct.pack('<I4', second)
    packed_own_ends = struct.pack('<I4', second + OF_SSP)
    hold_name = ends .. ':' .. budget_day
    hold_field = 'e' .. hold_name
  end
end

local function read_allowance(allowance)
  local values = redis.call('HMGET', allowance.key, 't', day_field, hold_field or 't')
  local total, day, held = values[1], values[2], hold_field and values[3]
  allowance.total, allowance.day, allowance.held = tonumber(total or 0), tonumber(day or 0), tonumber(held or 0)
  allowance.more, allowance.queued, allowance.has_old_days = 0, held, total and not day
end

local function end_holds(key, queue) -- those that are due
  local due = digits(math.floor(watermark() / 1000))
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', queue, '-inf', due)) do
    local held = redis.call('HGET', key, 'e' .. name)
    if held then
      redis.call('HDEL', key, 'e' .. name)
      local day, ssp = name:match('^%d+:(%d+):?(%d*)$')
      redis.call('HINCRBY', key, 't', '-' .. held)
      redis.call('HINCRBY', key, 'd' .. day, '-' .. held)
      if ssp ~= '' then
        end_share(key, ssp, held)
      end
    end
  end
  redis.call('ZREMRANGEBYSCORE', queue, '-inf', due)
end

-- Reads a campaign's use, after ending the holds that are due.
local second -- of the hold clock
local is_any_contested
local function open_allowance(campaign)
  local allowance = allowances[campaign]
  if not allowance then
    allowance = {key = base .. 'm:' .. campaign, queue = base .. 'x:' .. campaign, total = 0, day = 0,
      held = 0, more = 0, queued = false, has_old_days = false, is_contested = false}
    second = second or digits(math.floor(hold_clock() / 1000))
    if redis.call('ZCOUNT', allowance.queue, '-inf', second) > 0 then -- else no hold can be due
      end_holds(allowance.key, allowance.queue)
    end
    read_allowance(allowance)
    if is_any_contested == nil then
      is_any_contested = redis.call('EXISTS', base .. 'contested') == 1
    end
    if is_any_contested then
      local contested = redis.call('HGET', base .. 'contested', allowance.key)
      allowance.is_contested = contested and tonumber(contested) > tonumber(second)
    end
    allowances[campaign] = allowance
  end
  return allowance
end

local function forget_old_days(allowance)
  local oldest = now / DAY_S - 40
  for _, field in ipairs(redis.call('HKEYS', allowance.key)) do
    if field:sub(1, 1) == 'd' and tonumber(field:sub(2)) < oldest then
      redis.call('HDEL', allowance.key, field)
    end
  end
end

local function queue_hold(allowance)
  if not allowance.queued then -- the first hold that ends in this second
    redis.call('ZADD', allowance.queue, ends, hold_name)
    allowance.queued = true
  end
end

-- Writes the amounts added up here.
local function close_allowance(allowance)
  if allowance.more > 0 then
    if allowance.has_old_days then
      forget_old_days(allowance)
    end
    allowance.held, allowance.more = allowance.held + allowance.more, 0
    redis.call('HSET', allowance.key, 't', string.format('%d', allowance.total), -- as Redis would, more slowly
      day_field, string.format('%d', allowance.day), hold_field, string.format('%d', allowance.held))
    queue_hold(allowance)
  end
end

local function at_most(amount, limit) -- compares whole numbers as digits; limit '': none
  return limit == '' or #amount < #limit or #amount == #limit and amount <= limit
    or amount:sub(1, 1) == '-'
end

local function raise(key, field, price, limit) -- in Redis; returns false, unchanged, beyond the limit
  if not add(key, field, price) then
    return false
  end
  if at_most(redis.call('HGET', key, field), limit) then
    return true
  end
  redis.call('HINCRBY', key, field, '-' .. price)
  return false
end

local function afford_exactly(allowance, price, limits, holds)
  close_allowance(allowance)
  local fits = raise(allowance.key, 't', price, limits.total)
  if fits and not raise(allowance.key, day_field, price, limits.day) then
    redis.call('HINCRBY', allowance.key, 't', '-' .. price)
    fits = false
  end
  if fits and holds then
    redis.call('HINCRBY', allowance.key, hold_field, price)
    queue_hold(allowance)
  elseif fits then
    redis.call('HINCRBY', allowance.key, 't', '-' .. price)
    redis.call('HINCRBY', allowance.key, day_field, '-' .. price)
  end
  read_allowance(allowance)
  return fits
end

local function within(allowance, price, limits, holds)
  local cost = tonumber(price)
  local total, day = allowance.total + cost, allowance.day + cost
  if total >= EXACT or day >= EXACT or allowance.held + allowance.more + cost >= EXACT
    or total <= -EXACT or day <= -EXACT then
    return afford_exactly(allowance, price, limits, holds)
  end
  if limits.total_number and total > limits.total_number
    or limits.day_number and day > limits.day_number then
    return false
  end
  if holds then
    allowance.total, allowance.day, allowance.more = total, day, allowance.more + cost
  end
  return true
end

local function ssp_of(value) -- of a record
  return (struct.unpack('<I4', value))
end

-- What an SSP holds of a contested budget, under all of its ids, and what all SSPs hold; nil for nothing.
local function held_by(key, ssp)
  local fields, own = {'h'}, nil
  for _, id in ipairs(ids_of_family(ssp)) do
    fields[#fields + 1] = 'h' .. id
  end
  local values = redis.call('HMGET', key, unpack(fields))
  for i = 2, #fields do
    own = values[i] and (own or 0) + values[i] or own
  end
  return own, values[1]
end

-- Whether a bid is within its SSP's share of a contested budget: an SSP may hold half of what was
-- neither spent nor held when the contest began, or one bid.
local function within_share(allowance, price, limits, holds, value)
  close_allowance(allowance)
  if not within(allowance, price, limits, false) then
    return false, 'b'
  end
  local key, cost, ssp = allowance.key, tonumber(price), ssp_of(value)
  local free = math.min((limits.total_number or math.huge) - allowance.total,
    (limits.day_number or math.huge) - allowance.day)
  local own, all = held_by(key, ssp)
  if own and 2 * (own + cost) > free + all then
    return false, 'h'
  end
  if holds then
    local name = hold_name .. ':' .. ssp
    for _, field in ipairs({'t', day_field, 'e' .. name, 'h' .. ssp, 'h'}) do
      redis.call('HINCRBY', key, field, price)
    end
    redis.call('ZADD', allowance.queue, ends, name)
    read_allowance(allowance)
  end
  return true
end

-- Notes that an SSP was refused. If another was refused before, the budget is contested: from now on,
-- holds are counted by SSP.
local CONTESTED_S = 600
local function contest(allowance, value)
  local ssp = digits(family_of(ssp_of(value)))
  local before = redis.call('HGET', allowance.key, 'a')
  if before ~= ssp then
    redis.call('HSET', allowance.key, 'a', ssp)
    if before then
      redis.call('HSET', base .. 'contested', allowance.key, digits(second + CONTESTED_S))
      redis.call('EXPIRE', base .. 'contested', CONTESTED_S)
    end
  end
end

-- Returns whether a bid may be made and, if not, the letter. `value`: its record; nil to only check.
local function claim(allowance, price, limits, holds, value)
  if value and allowance.is_contested then
    return within_share(allowance, price, limits, holds, value)
  end
  if within(allowance, price, limits, holds) then
    return true
  end
  if value then
    contest(allowance, value)
  end
  return false, 'b'
end
