-- include base
-- include now
-- include segment
-- include clock
-- include headroom
-- include allowances
-- include grants
-- Updates the allowances of campaigns in this shard from their accounts, and returns money (escrow.py).
--
-- ARGV     1 now (epoch ms); then for each campaign its number, the delay (ms) of its next refill request
--          if it is still low, and the number of periods; and for each period its name (t: in total, DAY:
--          of one day), granted and returned according to the account, the value of `returned` on which
--          the return was decided, the amount to return, and the level below which to request a refill
-- Returns  1 if the drain has restored budgets, else 0; then for each campaign the lowest refused cost that
--          still does not fit, or 0; 1 if it will request a refill, else 0; and for each period granted,
--          returned, used, and the level below which it requests a refill
local NAMES = {g = true, r = true, l = true, w = true}

local function move(key, name, from, to) -- changes the allowance as a figure has changed
  redis.call('HINCRBY', key, name, to)
  if from ~= '0' then
    redis.call('HINCRBY', key, name, '-' .. from) -- some releases of Redis reject -0
  end
end

local function forget_periods(key, before) -- of days
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local day = NAMES[field:sub(1, 1)] and tonumber(field:sub(2))
    if day and day < before then
      redis.call('HDEL', key, field)
    end
  end
end

local function update(key, name, granted, returned, low)
  local own = redis.call('HMGET', key, 'g' .. name, 'r' .. name, 'w' .. name)
  local own_granted, own_returned, own_low = own[1] or '0', own[2] or '0', own[3] or '0'
  if not own[1] and name ~= 't' then
    forget_periods(key, tonumber(name) - 2)
  end
  if not at_most(granted, own_granted) then
    redis.call('HSET', key, 'g' .. name, granted)
    move(key, 'l' .. name, own_granted, granted)
    own_granted = granted
  end
  if not at_most(returned, own_returned) then
    redis.call('HSET', key, 'r' .. name, returned)
    move(key, 'l' .. name, returned, own_returned)
    own_returned = returned
  end
  if low ~= '' and low ~= own_low then
    redis.call('HSET', key, 'w' .. name, low)
    own_low = low
  end
  return own_granted, own_returned, own_low
end

local function give_back(key, name, used, amount) -- returns the new `returned`; nil if not all is unused
  redis.call('HINCRBY', key, 'l' .. name, '-' .. amount)
  local rest = redis.call('HGET', key, 'l' .. name)
  if rest:sub(1, 1) ~= '-' and at_most(used, rest) then
    redis.call('HINCRBY', key, 'r' .. name, amount)
    return redis.call('HGET', key, 'r' .. name)
  end
  redis.call('HINCRBY', key, 'l' .. name, amount)
end

enter_segment()
local reply, at, time = {has_confirmed_budgets() and 1 or 0}, 2, hold_clock()
while ARGV[at] do
  local campaign, lease_ms, periods = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local allowance, key, index = open_allowance(campaign), grants_key(campaign), #reply + 1
  local spare, is_low = math.huge, false
  reply[index], reply[index + 1] = 0, 0
  for from = at + 3, at + 3 + 6 * (periods - 1), 6 do
    local name, granted, returned, expected, amount, low = unpack(ARGV, from, from + 5)
    granted, returned, low = update(key, name, granted, returned, low)
    local used = redis.call('HGET', allowance.key, name == 't' and name or 'd' .. name) or '0'
    if amount ~= '0' and expected == returned then
      returned = give_back(key, name, used, amount) or returned
    end
    if name == 't' or 'd' .. name == day_field then
      local own = (redis.call('HGET', key, 'l' .. name) or 0) - used
      spare, is_low = math.min(spare, own), is_low or own < tonumber(low)
    end
    for _, figure in ipairs({granted, returned, used, low}) do
      reply[#reply + 1] = figure
    end
  end
  local refused = redis.call('HGET', base .. 'refused', campaign)
  if refused and reply[1] == 1 and spare >= tonumber(refused) then
    release(campaign)
    refused = false
  end
  if refused or is_low then
    reply[index], reply[index + 1] = refused or 0, 1
    redis.call('ZADD', base .. 'refills', digits(time + lease_ms), campaign)
  else
    redis.call('ZREM', base .. 'refills', campaign)
  end
  if refused then
    wait_for_hold(campaign, '-inf')
  end
  at = at + 3 + 6 * periods
end
return reply
