-- include now
-- include records
-- include money
-- include outbox
-- Applies notices to a user's impressions (money.lua has the keys), or posts them to the user's shard.

local function forget_impression(digest, record) -- whether held or counted
  if not record.user then
    return
  end
  if SHARDS > 1 then
    post(digest, record, FORGOTTEN, now_ms)
  else
    local holds, impressions = cap_keys(record.campaign, record.user)
    redis.call('ZREM', holds, cap_member(digest, record))
    redis.call('ZREM', impressions, cap_member(digest, record))
  end
end

-- A win or a billing turns a capped user's hold into an impression; a loss ends it. The time of an
-- impression is that of the billing, if there is one.
local function settle_cap(digest, record, kind, came_ms) -- most campaigns have no caps
  if SHARDS > 1 then
    if bit.band(record.kinds, kind == LOSS and WIN + BILLING or BILLING) == 0 then
      post(digest, record, kind, came_ms)
    end
    return
  end
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
