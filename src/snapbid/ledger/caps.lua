-- A campaign's limits as they come with a bid, and whether the user may see it once more (money.lua has
-- the keys).
local IN_ESCROW = '?' -- in place of a limit

-- Limits as ledger/limits.py packs them.
local parsed, NO_CAPS = {}, {}
local function parse_limits(packed)
  local limits = parsed[packed]
  if not limits then
    local campaign, day, growth, total, caps, at = struct.unpack('<I4Bc0Bc0Bc0B', packed)
    limits = {campaign = tostring(campaign), day = day, growth = growth, total = total,
      day_number = tonumber(day),
      total_number = tonumber(total), has_budget = day ~= '' or total ~= '', caps = NO_CAPS,
      in_escrow = day == IN_ESCROW or total == IN_ESCROW}
    if caps > 0 then
      limits.caps = {}
      for i = 1, caps do
        local impressions, seconds
        impressions, seconds, at = struct.unpack('<I4I4', packed, at)
        limits.caps[i] = {impressions, seconds}
      end
    end
    parsed[packed] = limits
  end
  return limits
end

-- Holds of impressions that end by this time of the hold clock have ended: of what was won by then all
-- counts, since the outboxes of the other shards are delivered (outbox.py).
local caps_mark
local function find_caps_mark() -- rare
  caps_mark = watermark()
  if SHARDS > 1 then
    caps_mark = settled_mark(caps_mark, base .. 'delivered')
  end
  return caps_mark
end

-- Whether one impression more for the user stays within every cap; and whether some holds have ended.
local function within_caps(limits, user)
  local holds, impressions = cap_keys(limits.campaign, user)
  local all, live = redis.call('ZCARD', holds), 0
  if all > 0 then
    live = redis.call('ZCOUNT', holds, '(' .. digits(caps_mark or find_caps_mark()), '+inf')
  end
  for _, cap in ipairs(limits.caps) do
    local from = '(' .. digits(now_ms - cap[2] * 1000)
    if live >= cap[1] or live + redis.call('ZCOUNT', impressions, from, '+inf') >= cap[1] then
      return false
    end
  end
  return true, live < all
end

local function hold_impression(campaign, user, member, hold_s, some_ended)
  local holds = cap_keys(campaign, user)
  redis.call('ZADD', holds, digits(hold_clock() + hold_s * 1000), member)
  if some_ended then
    redis.call('ZREMRANGEBYSCORE', holds, '-inf', digits(caps_mark))
  end
  redis.call('EXPIRE', holds, hold_s + SPOOL_GIVEN_UP_MS / 1000 + 60) -- the longest it may last
end

