-- include base
-- include now
-- include clock
-- include money
-- Parses the limits that come with a bid, and checks frequency caps (money.lua has the keys).
local IN_ESCROW = '?' -- instead of an amount

-- Parses limits as ledger/budgets/limits.py packs them.
local parsed, NO_CAPS = {}, {}
local function parse_limits(packed)
  local limits = parsed[packed]
  if not limits then
    local campaign, day, growth, total, caps, at = struct.unpack('<I4Bc0Bc0Bc0B', packed)
    limits = {campaign = string.format('%d', campaign), day = day, growth = growth, total = total,
      day_number = tonumber(day),
      total_number = tonumber(total), has_budget = day ~= '' or total ~= '', caps = NO_CAPS,
      in_escrow = day == IN_ESCROW or total == IN_ESCROW}
    if caps > 0 then
      limits.caps, limits.least = {}, math.huge
      limits.holds, limits.impressions = cap_keys(campaign, '')
      for i = 1, caps do
        local impressions, seconds
        impressions, seconds, at = struct.unpack('<I4I4', packed, at)
        limits.caps[i] = {impressions, seconds}
        limits.least = math.min(limits.least, impressions)
      end
    end
    parsed[packed] = limits
  end
  return limits
end

-- Holds of impressions that are due by this time of the hold clock have ended: all earlier wins are counted,
-- since the outboxes of the other shards are delivered up to it (outbox.py).
local caps_mark
local function find_caps_mark()
  caps_mark = watermark()
  if SHARDS > 1 then
    caps_mark = settled_mark(caps_mark, base .. 'delivered')
  end
  return caps_mark
end

local scores = {} -- arguments of ZCOUNT by time, shared by the bids of a batch
local function after(time_ms)
  local score = scores[time_ms]
  if not score then
    score = '(' .. digits(time_ms)
    scores[time_ms] = score
  end
  return score
end

-- Returns whether one more impression is within every cap of the user and, if so, the key of the user's
-- holds, and whether to sweep ended ones. That is rare: most users have fewer holds, ended ones included,
-- than any cap allows.
local SWEPT_AT = 16
local function within_caps(limits, user)
  local holds, impressions = limits.holds .. user, limits.impressions .. user
  local all, live = redis.call('ZCARD', holds), 0
  local sweeps = all % SWEPT_AT == SWEPT_AT - 1
  if all + redis.call('ZCARD', impressions) < limits.least then
    return true, holds, sweeps
  end
  if all > 0 then
    live = redis.call('ZCOUNT', holds, after(caps_mark or find_caps_mark()), '+inf')
  end
  for _, cap in ipairs(limits.caps) do
    if live >= cap[1]
      or live + redis.call('ZCOUNT', impressions, after(now_ms - cap[2] * 1000), '+inf') >= cap[1] then
      return false
    end
  end
  return true, holds, sweeps or live < all
end

local impression_ends, holds_last -- end (ms) and expiry (s) of the holds made by this script
local function hold_impression(holds, member, hold_s, sweeps)
  if not impression_ends then
    impression_ends = digits(hold_clock() + hold_s * 1000)
    holds_last = digits(hold_s + SPOOL_GIVEN_UP_MS / 1000 + 60) -- the longest life of a hold (s)
  end
  redis.call('ZADD', holds, impression_ends, member)
  if sweeps then
    redis.call('ZREMRANGEBYSCORE', holds, '-inf', digits(caps_mark or find_caps_mark()))
  end
  redis.call('EXPIRE', holds, holds_last)
end
