-- Campaigns refused for want of budget, until they have headroom again (money.lua has the keys).

local function note_refusal(campaign, cost)
  local before = redis.call('HGET', base .. 'refused', campaign)
  if not before or cost < tonumber(before) then
    redis.call('HSET', base .. 'refused', campaign, digits(cost))
  end
end

local function await_end_of_hold(campaign, after) -- the next hold of the campaign
  local next_one = redis.call('ZRANGEBYSCORE', base .. 'x:' .. campaign, after, '+inf', 'WITHSCORES',
    'LIMIT', 0, 1)
  if next_one[2] then
    redis.call('ZADD', base .. 'wait', next_one[2], campaign)
  else
    redis.call('ZREM', base .. 'wait', campaign)
  end
end

local ANNOUNCED = 100000 -- announcements that are kept
local function announce(campaign) -- that it has headroom again
  redis.call('HDEL', base .. 'refused', campaign)
  redis.call('ZREM', base .. 'wait', campaign)
  local said = redis.call('INCR', base .. 'said')
  redis.call('ZADD', base .. 'room', said, campaign)
  redis.call('ZREMRANGEBYSCORE', base .. 'room', '-inf', digits(said - ANNOUNCED))
end

