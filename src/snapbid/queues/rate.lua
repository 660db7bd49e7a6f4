-- Admits a request, or the further events of a batch, unless a limit within the rolling window is
-- reached. A request counts as one event at first. A refused batch does not count as a request either: the
-- newest request is removed instead, which is the batch's or was admitted moments after it.
--
-- KEYS[1]  list of the times (µs since the epoch) of admitted requests, oldest first
-- KEYS[2]  list of `TIME BEFORE COUNT`: further events admitted at a time, and the number before them;
--          absent without a limit on events
-- ARGV     window (µs), now (µs; empty: the clock of this server, which all workers share), limit on
--          requests (empty: further events of a request), limit on events, number of further events
-- Returns  0 if admitted, 1 if the limit on requests is reached, 2 if the limit on events is; if admitted,
--          µs until the oldest request leaves the window, else µs after which the same would certainly
--          be admitted; how many more requests their limit would admit now
--
-- Exact: whatever was admitted stays in the lists for the length of the window. What has left it is
-- popped from the front, each entry once, so trimming is O(1) amortised, however high the limit.

local window, now = tonumber(ARGV[1]), tonumber(ARGV[2])
local requests, events, more = tonumber(ARGV[3]), tonumber(ARGV[4]) or math.huge, tonumber(ARGV[5])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end

local function time_of(entry)
    return tonumber(entry) or tonumber(string.match(entry, '^%d+'))
end

local function trim(key) -- drops entries that left the window, or date from before a clock was set back
    local newest = redis.call('LINDEX', key, -1)
    while newest and time_of(newest) > now + window do
        redis.call('RPOP', key)
        newest = redis.call('LINDEX', key, -1)
    end
    local oldest = newest and redis.call('LINDEX', key, 0)
    while oldest and time_of(oldest) <= now - window do
        redis.call('LPOP', key)
        oldest = redis.call('LINDEX', key, 0)
    end
    return oldest, newest
end

local function total(entry, which) -- further events up to this entry, without it ('before') or with it
    local before, own = string.match(entry, ' (%d+) (%d+)$')
    return which == 'before' and tonumber(before) or before + own
end

local function wait_for(key, index)
    return time_of(redis.call('LINDEX', key, index)) + window - now
end

local first_request = trim(KEYS[1])
local count = redis.call('LLEN', KEYS[1])
if requests then
    if count >= requests then -- after the limit was lowered, several must leave first
        return {1, wait_for(KEYS[1], count - requests), 0}
    end
    more = more + 1
end

local first, last = 0, 0
if KEYS[2] then
    local oldest, newest = trim(KEYS[2])
    if oldest then
        first, last = total(oldest, 'before'), total(newest, 'with')
    end
end
local over = count + last - first + more - events
if over > 0 then
    if not requests and redis.call('RPOP', KEYS[1]) then -- it counts again when the batch is retried
        count = count - 1
    end
    local of_batches = math.min(over, last - first)
    local wait = 0
    if of_batches > 0 then
        local low, high = 0, redis.call('LLEN', KEYS[2]) - 1
        while low < high do -- find the first entry with which enough have left
            local middle = math.floor((low + high) / 2)
            local left = total(redis.call('LINDEX', KEYS[2], middle), 'with') - first
            if left >= of_batches then high = middle else low = middle + 1 end
        end
        wait = wait_for(KEYS[2], low)
    end
    local of_requests = math.min(over - of_batches, count)
    if of_requests > 0 then
        wait = math.max(wait, wait_for(KEYS[1], of_requests - 1))
    end
    return {2, wait > 0 and wait or window, 0}
end

if requests then
    redis.call('RPUSH', KEYS[1], string.format('%.0f', now))
    redis.call('PEXPIRE', KEYS[1], window / 1000)
elseif more > 0 then
    redis.call('RPUSH', KEYS[2], string.format('%.0f %.0f %.0f', now, last, more))
    redis.call('PEXPIRE', KEYS[2], window / 1000)
end
local since = first_request and time_of(first_request) or now
return {0, since + window - now, requests and requests - count - 1 or 0}
