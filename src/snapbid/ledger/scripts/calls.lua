-- Reads refill requests of allowances, and campaigns that have headroom again (escrow.py).
--
-- An allocator that takes a refill request has LEASE_MS to answer it, by the hold clock, which no clock
-- change affects; then another allocator gets it. With one shard there are no allocators: a campaign
-- whose request is due has headroom, and is announced.
--
-- ARGV     1 now (epoch ms); 2 the segment and 3 the number of the announcement read last (empty: none)
-- Returns  the segment, the number of its last announcement, campaigns with refill requests, campaigns
--          with headroom again, 1 if the drain has restored budgets, else 0, the server's time (epoch ms)
local LEASE_MS, MOST = 1000, 1000
local calls, ended = base .. 'calls', digits(math.floor(watermark() / 1000))

-- Whether holds that have ended still held money, which is free now; spend and losses leave none.
local function frees_money(campaign)
  local names = redis.call('ZRANGEBYSCORE', base .. 'x:' .. campaign, '-inf', ended)
  for _, name in ipairs(names) do
    if redis.call('HEXISTS', base .. 'm:' .. campaign, 'e' .. name) == 1 then
      return true
    end
  end
  return #names == 0 -- another script has ended the holds
end

for _, campaign in ipairs(redis.call('ZRANGEBYSCORE', base .. 'wait', '-inf', ended, 'LIMIT', 0,
  MOST)) do
  if frees_money(campaign) then
    redis.call('ZREM', base .. 'wait', campaign)
    redis.call('ZADD', calls, 0, campaign)
  else
    await_end_of_hold(campaign, '(' .. ended)
  end
end
local name, time = enter_segment(), server_ms()
local clock = SHARDS > 1 and hold_clock() or time
local due = redis.call('ZRANGEBYSCORE', calls, '-inf', digits(clock), 'LIMIT', 0, MOST)
for _, campaign in ipairs(due) do
  if SHARDS > 1 then
    redis.call('ZADD', calls, digits(clock + LEASE_MS), campaign)
  else
    redis.call('ZREM', calls, campaign)
    announce(campaign)
  end
end
local latest, room = redis.call('GET', base .. 'said') or '0', {}
local seen = ARGV[2] == name and ARGV[3] or '0'
if ARGV[2] ~= '' and seen ~= latest then
  room = redis.call('ZRANGEBYSCORE', base .. 'room', '(' .. seen, '+inf')
end
return {name, latest, SHARDS > 1 and due or {}, room, has_confirmed_budgets() and 1 or 0, digits(time)}
