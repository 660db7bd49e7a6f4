-- Which campaigns call for money, and which have room again (escrow.py).
--
-- Who takes a call has LEASE_MS to come, by the clock of holds, which nobody sets; then it is another
-- allocator's. With one shard there are no allocators: what calls has room.
--
-- ARGV     1 now (epoch ms); 2 the segment and 3 the announcement that were heard last, if any
-- Returns  the segment, its last announcement, campaigns that call, campaigns that have room again,
--          1 if the drain has confirmed what was spent, or 0; the server's time (epoch ms)
local LEASE_MS, MOST = 1000, 1000
local calls, ended = base .. 'calls', digits(math.floor(watermark() / 1000))

-- Whether holds have ended by now in which there was money: it may have been spent, or lost.
local function frees_money(campaign)
  local names = redis.call('ZRANGEBYSCORE', base .. 'x:' .. campaign, '-inf', ended)
  for _, name in ipairs(names) do
    if redis.call('HEXISTS', base .. 'm:' .. campaign, 'e' .. name) == 1 then
      return true
    end
  end
  return #names == 0 -- another script has ended them
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
local said, room = redis.call('GET', base .. 'said') or '0', {}
local heard = ARGV[2] == name and ARGV[3] or '0'
if ARGV[2] ~= '' and heard ~= said then
  room = redis.call('ZRANGEBYSCORE', base .. 'room', '(' .. heard, '+inf')
end
return {name, said, SHARDS > 1 and due or {}, room, has_confirmed_budgets() and 1 or 0, digits(time)}
