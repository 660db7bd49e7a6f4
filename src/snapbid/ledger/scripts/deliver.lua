-- include base
-- include now
-- include records
-- include clock
-- include money
-- Applies outbox entries to the users of this shard (outbox.lua); idempotent.
--
-- A win does not change the time of an existing impression: it is that of the billing, which may have
-- arrived first.
--
-- ARGV     1 now (epoch ms); 2 the entries; then pairs: the shard of an outbox, and the time up to which
--          it is delivered to this shard (hold clock)
local function settle_impression(kind, campaign, user, member, longest, came_ms)
  local holds, impressions = cap_keys(campaign, user)
  redis.call('ZREM', holds, member)
  if kind == FORGOTTEN then
    redis.call('ZREM', impressions, member)
  elseif kind ~= LOSS then
    if kind == WIN then
      redis.call('ZADD', impressions, 'NX', digits(came_ms), member)
    else
      redis.call('ZADD', impressions, digits(came_ms), member)
    end
    redis.call('ZREMRANGEBYSCORE', impressions, '-inf', digits(server_ms() - longest * 1000))
    redis.call('EXPIRE', impressions, digits(longest + 60))
  end
end

local entries, at, size = ARGV[2], 1, #ARGV[2]
while at <= size do
  local kind, campaign, user, member, longest, seconds, ms
  kind, campaign, user, member, longest, seconds, ms, at =
    struct.unpack('<BI4c16c20I4I4I2', entries, at)
  settle_impression(kind, campaign, user, member, longest, seconds * 1000 + ms)
end
local outboxes, time = base .. 'outboxes', hold_clock()
for i = 3, #ARGV, 2 do
  local before = (redis.call('HGET', outboxes, ARGV[i]) or ''):match('^%d+')
  local settled = math.min(math.max(tonumber(ARGV[i + 1]), tonumber(before or 0)), time)
  redis.call('HSET', outboxes, ARGV[i], digits(settled) .. ' ' .. digits(time))
end
if ARGV[3] then
  local delivered = digits(settled_mark(time, outboxes))
  redis.call('HSET', base .. 'delivered', 'mark', delivered .. ' ' .. digits(time))
end
return 1
