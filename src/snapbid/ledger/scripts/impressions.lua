-- Applies notices to a user's impressions, in a ledger of one shard (money.lua has the keys).

local function forget_impression(digest, record) -- rare: held or counted
  if record.user then
    local holds, impressions = cap_keys(record.campaign, record.user)
    redis.call('ZREM', holds, cap_member(digest, record))
    redis.call('ZREM', impressions, cap_member(digest, record))
  end
end

-- A win or a billing turns a capped user's hold into an impression; a loss ends it. The time of an
-- impression is that of the billing, if there is one.
local function settle_cap(digest, record, kind, came_ms) -- rare: most campaigns have no caps
  local holds, impressions = cap_keys(record.campaign, record.user)
  local member, longest = cap_member(digest, record), record.longest
  if kind ~= LOSS then
    redis.call('ZREM', holds, member)
    if kind == BILLING or bit.band(record.kinds, BILLING) == 0 then
      redis.call('ZADD', impressions, digits(came_ms), member)
      redis.call('ZREMRANGEBYSCORE', impressions, '-inf', digits(now_ms - longest * 1000))
      redis.call('EXPIRE', impressions, digits(longest + 60))
    end
  elseif bit.band(record.kinds, WIN + BILLING) == 0 then
    redis.call('ZREM', holds, member)
  end
end
