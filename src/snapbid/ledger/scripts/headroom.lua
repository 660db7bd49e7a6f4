-- include base
-- include now
-- Campaigns that are refused for lack of headroom, until their release (money.lua has the keys).

local function note_refusal(campaign, cost)
  local before = redis.call('HGET', base .. 'refused', campaign)
  if not before or cost < tonumber(before) then
    redis.call('HSET', base .. 'refused', campaign, digits(cost))
  end
end

local function wait_for_hold(campaign, later_than) -- until the end of its next hold
  local next_one = redis.call('ZRANGEBYSCORE', base .. 'x:' .. campaign, later_than, '+inf',
    'WITHSCORES', 'LIMIT', 0, 1)
  if next_one[2] then
    redis.call('ZADD', base .. 'until:hold', next_one[2], campaign)
  else
    redis.call('ZREM', base .. 'until:hold', campaign)
  end
end

local RELEASES = 100000 -- kept
local function release(campaign) -- which has headroom again; published to all workers
  redis.call('HDEL', base .. 'refused', campaign)
  redis.call('ZREM', base .. 'until:hold', campaign)
  redis.call('ZREM', base .. 'until:pacing', campaign)
  local number = redis.call('INCR', base .. 'released')
  redis.call('ZADD', base .. 'releases', number, campaign)
  redis.call('ZREMRANGEBYSCORE', base .. 'releases', '-inf', digits(number - RELEASES))
end

-- Releases a refused campaign after money was freed. With several shards, the allocator does so if it is
-- enough for the refused cost (escrow.lua).
local function reconsider(campaign)
  if SHARDS > 1 then
    redis.call('ZADD', base .. 'refills', 0, campaign)
  else
    release(campaign)
  end
end

