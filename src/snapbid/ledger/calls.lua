-- Which campaigns call for money, and which have room again (escrow.py).
--
-- Who takes a call has LEASE_MS to come; then it is another banker's.
--
-- ARGV     1 now (epoch ms); 2 the segment and 3 the announcement that were heard last, if any
-- Returns  the segment, its last announcement, campaigns that call, campaigns that have room again,
--          the server's time (epoch ms)
local LEASE_MS, MOST = 1000, 1000
local calls, ended = base .. 'calls', digits(math.floor(watermark() / 1000))
for _, campaign in ipairs(redis.call('ZRANGEBYSCORE', base .. 'wait', '-inf', ended, 'LIMIT', 0,
  MOST)) do -- a hold of theirs is to end
  redis.call('ZREM', base .. 'wait', campaign)
  redis.call('ZADD', calls, 0, campaign)
end
local name, time = enter_segment(), server_ms()
local due = redis.call('ZRANGEBYSCORE', calls, '-inf', digits(time), 'LIMIT', 0, MOST)
for _, campaign in ipairs(due) do
  redis.call('ZADD', calls, digits(time + LEASE_MS), campaign)
end
local said, room = redis.call('GET', base .. 'said') or '0', {}
local heard = ARGV[2] == name and ARGV[3] or '0'
if ARGV[2] ~= '' and heard ~= said then
  room = redis.call('ZRANGEBYSCORE', base .. 'room', '(' .. heard, '+inf')
end
return {name, said, due, room, digits(time)}
