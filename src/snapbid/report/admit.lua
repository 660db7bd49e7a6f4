-- Counts one request of a token unless as many as the limit were counted within the window.
--
-- KEYS[1]  list of the times (µs since the epoch) of those that were counted
-- ARGV     limit, window (µs), now (µs; empty: this server's clock, the same for all workers)
-- Returns  1 if counted, how many more would be, µs until the oldest counted one leaves

local limit, window, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end

local counted, oldest = 0, now
for _, text in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
    local at = tonumber(text)
    -- What lies far ahead was written before the clock was set back.
    if now - window < at and at <= now + window then
        counted = counted + 1
        oldest = math.min(oldest, at)
    end
end

local admitted = 0
if counted < limit then
    admitted, counted = 1, counted + 1
    redis.call('RPUSH', KEYS[1], string.format('%.0f', now))
    redis.call('LTRIM', KEYS[1], -limit, -1)
    redis.call('PEXPIRE', KEYS[1], window / 1000)
end
return {admitted, limit - counted, oldest + window - now}
