-- Leases permits to a worker, keeping all workers together within a limit per second.
--
-- KEYS[1]  hash: slice of time -> permits leased in it
-- ARGV     limit, permits wanted, width of a slice (µs), number of slices that count,
--          slice and number of unused permits to return (empty: none)
-- Returns  permits granted; if none, µs until some may be free; the slice to which they count

local limit, wanted = tonumber(ARGV[1]), tonumber(ARGV[2])
local width, span = tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local slice = math.floor(now / width)

if ARGV[5] ~= '' and redis.call('HEXISTS', KEYS[1], ARGV[5]) == 1 then
    redis.call('HINCRBY', KEYS[1], ARGV[5], -tonumber(ARGV[6]))
end

local leased, oldest = 0, slice
local slices = redis.call('HGETALL', KEYS[1])
for i = 1, #slices, 2 do
    local number, permits = tonumber(slices[i]), tonumber(slices[i + 1])
    -- Slices far ahead were written before the clock was set back.
    if number <= slice - span or number > slice + span or permits <= 0 then
        redis.call('HDEL', KEYS[1], slices[i])
    else
        leased = leased + permits
        oldest = math.min(oldest, number)
    end
end

local granted = math.min(limit - leased, wanted)
if granted <= 0 then
    return {0, (oldest + span) * width - now, slice}
end
redis.call('HINCRBY', KEYS[1], string.format('%.0f', slice), granted)
redis.call('PEXPIRE', KEYS[1], math.ceil(2 * span * width / 1000))
return {granted, 0, slice}
