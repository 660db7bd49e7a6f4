-- include base
-- include headroom
-- include caps
-- include allowances
-- A shard's grants from budgets in escrow, and its refill requests (money.lua has the keys).

local function grants_key(campaign)
  return base .. 'g:' .. campaign
end

-- Returns the limits of a campaign in escrow: this shard's grants.
local function grants(allowance, limits)
  local granted = allowance.granted
  if not granted then
    local key = grants_key(limits.campaign)
    local left = redis.call('HMGET', key, 'lt', 'l' .. budget_day, 'wt', 'w' .. budget_day)
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

local function request_refills()
  for campaign, allowance in pairs(allowances) do
    if allowance.in_escrow then
      request_refill(campaign, allowance)
    end
  end
end
