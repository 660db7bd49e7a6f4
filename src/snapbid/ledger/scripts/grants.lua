-- Budgets in a ledger of several shards: a bid must be within what its shard was granted.

local function grants_key(campaign)
  return base .. 'g:' .. campaign
end

-- Returns the limits of a campaign in escrow: what this shard was granted (money.lua).
local function grants(allowance, limits)
  local granted = allowance.granted
  if not granted then
    local key, day = grants_key(limits.campaign), today:sub(2)
    local left = redis.call('HMGET', key, 'lt', 'l' .. day, 'wt', 'w' .. day)
    granted = {total = limits.total == IN_ESCROW and (left[1] or '0') or '',
      day = limits.day == IN_ESCROW and (left[2] or '0') or ''}
    granted.total_number, granted.day_number = tonumber(granted.total), tonumber(granted.day)
    granted.least_total = granted.total_number and granted.total_number - (left[3] or 0)
    granted.least_day = granted.day_number and granted.day_number - (left[4] or 0)
    allowance.granted = granted
  end
  return granted
end

local function request_refill(campaign, allowance) -- if it has refused a bid, or is low
  local granted, refused = allowance.granted, allowance.refused
  if refused then
    note_refusal(campaign, refused)
    wait_for_hold(campaign, '-inf')
  end
  if refused or granted and (granted.least_total and allowance.total > granted.least_total
    or granted.least_day and allowance.day > granted.least_day) then
    redis.call('ZADD', base .. 'refills', 'NX', 0, campaign)
  end
end

-- Whether the price (digits) is within the limits; if so, it is held if `holds` is true. If not, also the
-- letter: b over the budget, h over the SSP's share of it.
local function afford(allowance, price, limits, holds, value)
  local of = limits
  if limits.in_escrow then
    of, allowance.in_escrow = grants(allowance, limits), true
  end
  local fits, letter = false, 'b'
  if has_confirmed_budgets() then
    fits, letter = claim(allowance, price, of, holds, value)
  end
  if letter == 'b' and limits.in_escrow then
    allowance.refused = math.min(allowance.refused or math.huge, tonumber(price))
  end
  return fits, letter
end

local function close_allowances()
  for campaign, allowance in pairs(allowances) do
    close_allowance(allowance)
    if allowance.in_escrow then
      request_refill(campaign, allowance)
    end
  end
end
