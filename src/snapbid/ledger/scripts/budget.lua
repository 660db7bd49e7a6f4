-- include base
-- include now
-- include counters
-- include segment
-- include headroom
-- include allowances
-- include grants
-- Checks bids against the budget or, with several shards, the shard's grants from it.

-- Returns whether a price (digits) is within the limits and, if not, the letter: b over the budget, h over
-- the SSP's share of it. With `holds`, a price within the limits is held.
local some_refused = false
local function afford(allowance, price, limits, holds, value)
  local of, is_noted = limits, true
  if SHARDS > 1 then
    is_noted = limits.in_escrow
    if is_noted then
      of, allowance.in_escrow = grants(allowance, limits), true
    end
  end
  local fits, letter = false, 'b'
  if has_confirmed_budgets() then
    fits, letter = claim(allowance, price, of, holds, value)
  end
  if letter == 'b' and is_noted then
    allowance.refused, allowance.limits = math.min(allowance.refused or math.huge, tonumber(price)), limits
    some_refused = true
  end
  return fits, letter
end

-- Notes refused campaigns, and when to release them (releases.lua): at the end of a hold, or once pacing
-- allows more.
local function note_refusals()
  for campaign, allowance in pairs(allowances) do
    local cost, limits = allowance.refused, allowance.limits
    if cost then
      note_refusal(campaign, cost)
      wait_for_hold(campaign, '-inf')
      local growth = tonumber(limits.growth) or 0
      local short = growth > 0 and allowance.day + cost - limits.day_number or 0
      if short > 0 and (not limits.total_number or allowance.total + cost <= limits.total_number) then
        local until_ms = (now + math.ceil(short / growth)) * 1000
        redis.call('ZADD', base .. 'until:pacing', 'LT', digits(until_ms), campaign)
      end
    end
  end
end

local function close_allowances()
  for _, allowance in pairs(allowances) do
    close_allowance(allowance)
  end
  if SHARDS > 1 then
    request_refills()
  else
    if some_refused then
      note_refusals()
    end
  end
end

-- Uses the budget of the day on which a bid was made: bids made just before midnight may come after it.
local function use_budget_of(made)
  local made_on = math.floor(made / DAY_S)
  if made_on ~= budget_day then
    close_allowances()
    budget_day, day_field, allowances, ends = made_on, 'd' .. made_on, {}, nil
  end
end
