-- Counts one request of a key unless as many as its rate were counted within the window.
--
-- KEYS[1]  list of the times (µs since the epoch) of those that were counted, oldest first
-- ARGV     limit, window (µs), now (µs; empty: this server's clock, the same for all workers)
-- Returns  0 if counted, else µs until the next one would be
--
-- Exact: each counted request stands in the list for as long as the window. What has left it is
-- removed from the front, once each, so that a call costs the same however many there are.

local limit, window, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end

local last = tonumber(redis.call('LINDEX', KEYS[1], -1) or 0)
if last > now + window then -- written before the clock was set back
    redis.call('DEL', KEYS[1])
end
local oldest = redis.call('LINDEX', KEYS[1], 0)
while oldest and tonumber(oldest) <= now - window do
    redis.call('LPOP', KEYS[1])
    oldest = redis.call('LINDEX', KEYS[1], 0)
end
local over = redis.call('LLEN', KEYS[1]) - limit
if over >= 0 then -- `over` of them are too many where the rate was lowered
    return redis.call('LINDEX', KEYS[1], over) + window - now
end
redis.call('RPUSH', KEYS[1], string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], window / 1000)
return 0
