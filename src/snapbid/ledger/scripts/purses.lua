-- What campaigns have used, and whether a cost is within their limits (money.lua has the keys).
--
-- Redis counts in 64 bits, Lua only up to 2^53 exactly: small amounts are added up here and written
-- at the end of a script, large ones are counted in Redis first, compared as digits, and taken back
-- where they do not fit.
local EXACT = 9007199254740992
local today = 'd' .. math.floor(now / DAY_S)
local purses = {}

-- When the holds of this script end.
local ends, packed_ends, packed_own_ends, hold_name, hold_field
local function hold_for(hold_s)
  if not ends then
    local second = math.ceil(hold_clock() / 1000 + hold_s)
    ends, packed_ends = digits(second), struct.pack('<I4', second)
    packed_own_ends = struct.pack('<I4', second + OF_SSP)
    hold_name = ends .. ':' .. today:sub(2)
    hold_field = 'e' .. hold_name
  end
end

local function read(purse)
  local values = redis.call('HMGET', purse.key, 't', today, hold_field or 't')
  local total, day, held = values[1], values[2], hold_field and values[3]
  purse.total, purse.day, purse.held = tonumber(total or 0), tonumber(day or 0), tonumber(held or 0)
  purse.more, purse.queued, purse.has_old_days = 0, held, total and not day
end

local function end_holds(key, queue) -- rare: those that are due
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

-- What a campaign has used, after the holds that are due have ended.
local second -- of the hold clock
local is_any_contested = redis.call('EXISTS', base .. 'contested') == 1
local function open_purse(campaign)
  local purse = purses[campaign]
  if not purse then
    purse = {key = base .. 'm:' .. campaign, queue = base .. 'x:' .. campaign, total = 0, day = 0,
      held = 0, more = 0, queued = false, has_old_days = false, is_contested = false}
    second = second or digits(math.floor(hold_clock() / 1000))
    if redis.call('ZCOUNT', purse.queue, '-inf', second) > 0 then -- none is due before its end
      end_holds(purse.key, purse.queue)
    end
    read(purse)
    if is_any_contested then
      local contested = redis.call('HGET', base .. 'contested', purse.key)
      purse.is_contested = contested and tonumber(contested) > tonumber(second)
    end
    purses[campaign] = purse
  end
  return purse
end

local function forget_old_days(purse) -- rare
  local oldest = now / DAY_S - 40
  for _, field in ipairs(redis.call('HKEYS', purse.key)) do
    if field:sub(1, 1) == 'd' and tonumber(field:sub(2)) < oldest then
      redis.call('HDEL', purse.key, field)
    end
  end
end

local function queue_hold(purse)
  if not purse.queued then -- the first of its second
    redis.call('ZADD', purse.queue, ends, hold_name)
    purse.queued = true
  end
end

-- Writes what was added up here.
local function close_purse(purse)
  if purse.more > 0 then
    if purse.has_old_days then
      forget_old_days(purse)
    end
    purse.held, purse.more = purse.held + purse.more, 0
    redis.call('HSET', purse.key, 't', string.format('%d', purse.total), -- as Redis would, more slowly
      today, string.format('%d', purse.day), hold_field, string.format('%d', purse.held))
    queue_hold(purse)
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

local function afford_exactly(purse, price, limits, holds) -- rare
  close_purse(purse)
  local fits = raise(purse.key, 't', price, limits.total)
  if fits and not raise(purse.key, today, price, limits.day) then
    redis.call('HINCRBY', purse.key, 't', '-' .. price)
    fits = false
  end
  if fits and holds then
    redis.call('HINCRBY', purse.key, hold_field, price)
    queue_hold(purse)
  elseif fits then
    redis.call('HINCRBY', purse.key, 't', '-' .. price)
    redis.call('HINCRBY', purse.key, today, '-' .. price)
  end
  read(purse)
  return fits
end

local function within(purse, price, limits, holds)
  local cost = tonumber(price)
  local total, day = purse.total + cost, purse.day + cost
  if total >= EXACT or day >= EXACT or purse.held + purse.more + cost >= EXACT
    or total <= -EXACT or day <= -EXACT then
    return afford_exactly(purse, price, limits, holds)
  end
  if limits.total_number and total > limits.total_number
    or limits.day_number and day > limits.day_number then
    return false
  end
  if holds then
    purse.total, purse.day, purse.more = total, day, purse.more + cost
  end
  return true
end

local function ssp_of(value) -- rare: of a record
  return digits((struct.unpack('<I4', value)))
end

-- Whether a bid is within its SSP's share, while several SSPs ask: one holds at most half of what is
-- neither spent nor held from before they did, or one bid.
local function within_share(purse, price, limits, holds, value) -- rare
  close_purse(purse)
  if not within(purse, price, limits, false) then
    return false, 'b'
  end
  local key, cost, ssp = purse.key, tonumber(price), ssp_of(value)
  local free = math.min((limits.total_number or math.huge) - purse.total,
    (limits.day_number or math.huge) - purse.day)
  local own, all = unpack(redis.call('HMGET', key, 'h' .. ssp, 'h'))
  if own and 2 * (own + cost) > free + all then
    return false, 'h'
  end
  if holds then
    local name = hold_name .. ':' .. ssp
    for _, field in ipairs({'t', today, 'e' .. name, 'h' .. ssp, 'h'}) do
      redis.call('HINCRBY', key, field, price)
    end
    redis.call('ZADD', purse.queue, ends, name)
    read(purse)
  end
  return true
end

-- Notes that an SSP was refused: where another one was before, their holds begin to count.
local CONTESTED_S = 600
local function contest(purse, value) -- rare
  local ssp = ssp_of(value)
  local before = redis.call('HGET', purse.key, 'a')
  if before ~= ssp then
    redis.call('HSET', purse.key, 'a', ssp)
    if before then
      redis.call('HSET', base .. 'contested', purse.key, digits(second + CONTESTED_S))
      redis.call('EXPIRE', base .. 'contested', CONTESTED_S)
    end
  end
end

-- Whether a bid may be made; else the letter. `value`: its record, or nil where it is nobody's.
local function claim(purse, price, limits, holds, value)
  if value and purse.is_contested then
    return within_share(purse, price, limits, holds, value)
  end
  if within(purse, price, limits, holds) then
    return true
  end
  if value then
    contest(purse, value)
  end
  return false, 'b'
end
