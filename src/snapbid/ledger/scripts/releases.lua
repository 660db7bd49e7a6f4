-- include base
-- include now
-- include segment
-- include clock
-- include headroom
-- Releases refused campaigns that are due, and reads the releases since the last call; with several shards,
-- also reads refill requests of allowances (escrow.py).
--
-- An allocator that takes a refill request has LEASE_MS to answer it, by the hold clock, which ignores clock
-- changes; then another allocator gets it.
--
-- ARGV     1 now (epoch ms); 2 the segment, and 3 the number, of the release last read (empty: none)
-- Returns  the segment, the number of its last release, campaigns with refill requests, released
--          campaigns, 1 if the drain has restored budgets, else 0, the server's time (epoch ms)
local LEASE_MS, MOST = 1000, 1000
local ended = digits(math.floor(watermark() / 1000))

-- Whether any hold that has ended still had money, which is now free; wins and losses leave none in it.
local function frees_money(campaign)
  local names = redis.call('ZRANGEBYSCORE', base .. 'x:' .. campaign, '-inf', ended)
  for _, name in ipairs(names) do
    if redis.call('HEXISTS', base .. 'm:' .. campaign, 'e' .. name) == 1 then
      return true
    end
  end
  return #names == 0 -- another script has ended the holds
end

local function due(key, time)
  return redis.call('ZRANGEBYSCORE', base .. key, '-inf', time, 'LIMIT', 0, MOST)
end

for _, campaign in ipairs(due('until:hold', ended)) do
  if frees_money(campaign) then
    redis.call('ZREM', base .. 'until:hold', campaign)
    reconsider(campaign)
  else
    wait_for_hold(campaign, '(' .. ended)
  end
end
local name, time, refills = enter_segment(), server_ms(), {}
if SHARDS > 1 then
  refills = due('refills', digits(hold_clock()))
  for _, campaign in ipairs(refills) do
    redis.call('ZADD', base .. 'refills', digits(hold_clock() + LEASE_MS), campaign)
  end
else
  for _, campaign in ipairs(due('until:pacing', digits(time))) do
    release(campaign)
  end
end
local latest, released = redis.call('GET', base .. 'released') or '0', {}
local seen = ARGV[2] == name and ARGV[3] or '0'
if ARGV[2] ~= '' and seen ~= latest then
  released = redis.call('ZRANGEBYSCORE', base .. 'releases', '(' .. seen, '+inf')
end
return {name, latest, refills, released, has_confirmed_budgets() and 1 or 0, digits(time)}
