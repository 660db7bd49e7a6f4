-- Admits a request of a key, or some of its events, unless as many as its limits were admitted
-- within the rolling window. Both or neither is counted.
--
-- KEYS[1]  list of the times (µs since the epoch) of the admitted requests, oldest first
-- KEYS[2]  list of `TIME BEFORE COUNT`: events admitted at a time, and how many there were before
-- ARGV     window (µs), now (µs; empty: this server's clock, which all workers share), limit of
--          requests (empty: this is none), limit of events, how many events (0: not known yet)
-- Returns  0 if admitted; else 1 for the requests' limit or 2 for the events', and µs until the
--          same would be admitted
--
-- Exact: what was admitted stays in the lists for as long as the window.

local window, now = tonumber(ARGV[1]), tonumber(ARGV[2])
local requests, events, count = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end

local function time_of(entry)
    return tonumber(string.match(entry, '^%d+'))
end

local function trim(key) -- drop what has left the window, and what a clock set back leaves ahead
    local newest = redis.call('LINDEX', key, -1)
    while newest and time_of(newest) > now + window do
        redis.call('RPOP', key)
        newest = redis.call('LINDEX', key, -1)
    end
    local oldest = redis.call('LINDEX', key, 0)
    while oldest and time_of(oldest) <= now - window do
        redis.call('LPOP', key)
        oldest = redis.call('LINDEX', key, 0)
    end
    return oldest, newest
end

local function add(key, entry)
    redis.call('RPUSH', key, entry)
    redis.call('PEXPIRE', key, window / 1000)
end

local function totals(entry) -- events before this entry, and with it
    local before, own = string.match(entry, ' (%d+) (%d+)$')
    return tonumber(before), before + own
end

if requests then
    trim(KEYS[1])
    local over = redis.call('LLEN', KEYS[1]) - requests
    if over >= 0 then -- above 0 after the limit was lowered: several must leave first
        return {1, time_of(redis.call('LINDEX', KEYS[1], over)) + window - now}
    end
end

local oldest, newest = trim(KEYS[2])
local first, total = 0, 0
if oldest and newest then
    first = totals(oldest)
    local _, last = totals(newest)
    total = last
end
local over = total - first + math.max(count, 1) - events
if over > 0 then
    local low, high = 0, redis.call('LLEN', KEYS[2]) - 1
    while low < high do -- the first entry with which enough have left
        local middle = math.floor((low + high) / 2)
        local _, left = totals(redis.call('LINDEX', KEYS[2], middle))
        if left - first >= over then high = middle else low = middle + 1 end
    end
    local last = redis.call('LINDEX', KEYS[2], low)
    return {2, (last and time_of(last) or now) + window - now}
end

local at = string.format('%.0f', now)
if requests then
    add(KEYS[1], at)
end
if count > 0 then
    add(KEYS[2], string.format('%s %.0f %.0f', at, total, count))
end
return {0, 0}
