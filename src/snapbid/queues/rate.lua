-- Admits a request unless the limit within the rolling window is reached.
--
-- KEYS[1]  list of the times (µs since the epoch) of admitted requests, oldest first
-- ARGV     limit, window (µs), now (µs; empty: the clock of this server, which all workers share)
-- Returns  1 if admitted, else 0; how many more would be admitted now; if admitted, µs until the
--          oldest request leaves the window, else µs until a request would be admitted
--
-- Exact: every admitted request stays in the list for the length of the window. Expired times are
-- popped from the front, each once, so a call is O(1) amortised, however high the limit.

local limit, window, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end

local newest = redis.call('LINDEX', KEYS[1], -1)
while newest and tonumber(newest) > now + window do -- written before the clock was set back
    redis.call('RPOP', KEYS[1])
    newest = redis.call('LINDEX', KEYS[1], -1)
end
local oldest = redis.call('LINDEX', KEYS[1], 0)
while oldest and tonumber(oldest) <= now - window do
    redis.call('LPOP', KEYS[1])
    oldest = redis.call('LINDEX', KEYS[1], 0)
end

local over = redis.call('LLEN', KEYS[1]) - limit
if over >= 0 then -- above 0 after the limit was lowered: several must leave first
    return {0, 0, redis.call('LINDEX', KEYS[1], over) + window - now}
end
redis.call('RPUSH', KEYS[1], string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], window / 1000)
return {1, -over - 1, (oldest or now) + window - now}
