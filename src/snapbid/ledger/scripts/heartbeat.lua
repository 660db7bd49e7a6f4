-- include base
-- include now
-- include segment
-- include time_buckets
-- include clock
-- include discrepancies
-- Records that a process is alive, its TTL, and up to when its notices are settled; also does periodic
-- maintenance.
--
-- Heartbeats are numbered. One that was acknowledged has reached the required replicas, so a replica that is
-- promoted knows its number, or a later one.
--
-- A process that is signed off while its heartbeat is under way stays signed off (sign_off.lua).
--
-- ARGV     1 now (epoch ms); 2 how long a bid is remembered (s); 3 token of the process (empty: it has no
--          spool); 4 time up to which every notice it acknowledged is settled (hold clock, ms; empty:
--          unchanged); 5 number of its last acknowledged heartbeat; 6 the primary that had it (replication
--          id); 7 when (server's time, epoch ms)
-- Returns  the server's time (epoch ms), the hold clock (ms), when the current segment began (epoch s),
--          the epoch, 1 if Redis is nearly full, else 0, the number of this heartbeat, this primary, and the
--          tokens of processes given up on
local ttls, ttl = base .. 'ttl', ARGV[2]
local announced = redis.call('HGET', ttls, ttl)
if not announced or math.abs(now - announced) >= 60 then
  local longest = longest_ttl(0)
  redis.call('HSET', ttls, ttl, digits(now))
  if tonumber(ttl) > longest then
    redis.call('HDEL', base .. 'r', 'current') -- the next time bucket must last longer
  end
end

-- Ends the current time bucket if its buckets are full, or if its time is over: a worker with a slow clock
-- must not add to it. The next bid opens another one.
local function end_time_bucket()
  local number, buckets = current_time_bucket()
  if number and (buckets == MOST_BUCKETS or records_a_bucket(number, buckets) < FULL) then
    return number
  end
  redis.call('HDEL', base .. 'r', 'current')
end

-- Redis deletes expired keys in slices of up to 25 ms, so the expiries of a time bucket are spread out.
local BUCKETS_A_BEAT, APART_S = 256, 600
local function expire_buckets(taking) -- of time buckets that take no more records; see records.lua
  local registry, known = base .. 'r', time_buckets()
  for i = #known, 1, -1 do -- the oldest first
    local time_bucket = known[i]
    local next_one = time_bucket ~= taking and redis.call('HGET', registry, 'x' .. time_bucket)
    if next_one then
      local expires, buckets = redis.call('HGET', registry, time_bucket), buckets_of[time_bucket]
      local after = math.min(next_one + BUCKETS_A_BEAT, buckets)
      for bucket = next_one, after - 1 do
        local own = math.floor(expires + APART_S * bucket / buckets)
        redis.call('EXPIREAT', string.format(keys_of(time_bucket), bucket), digits(own))
      end
      if after < buckets then
        redis.call('HSET', registry, 'x' .. time_bucket, after)
      else
        redis.call('HDEL', registry, 'x' .. time_bucket)
      end
      break
    end
  end
end
if redis.call('EXISTS', base .. 'closed') == 0 then
  expire_buckets(end_time_bucket())
end

local time, spools, token = hold_clock(), base .. 'spools', ARGV[3]
local known = redis.call('HGET', spools, token)
if token ~= '' and (known or not redis.call('ZSCORE', base .. 'spools:left', token)) then
  local settled, before, seen = tonumber(ARGV[4]), nil, nil
  if known then
    before, seen = known:match('^(%d+) (%d+)$')
  end
  settled = math.min(settled or tonumber(before) or watermark(), time)
  if not known or time - seen >= 900 or seen - time > 0 then
    redis.call('HSET', spools, token, digits(settled) .. ' ' .. digits(time))
  end
end
-- The rest is reserved for notices, and for what the drain must write before memory shrinks.
local FULL_SHARE = 0.95
local function is_nearly_full()
  local info = redis.pcall('INFO', 'memory')
  if type(info) ~= 'string' then
    return 0 -- the Redis user may not call INFO
  end
  local used = tonumber(info:match('used_memory:(%d+)'))
  local most = tonumber(info:match('maxmemory:(%d+)'))
  return most > 0 and used >= most * FULL_SHARE and 1 or 0
end
local began = redis.call('HGET', base .. 'segments', current_segment())
local beat, replication = redis.call('HINCRBY', base .. 'h', 'beats', 1), redis.call('INFO', 'replication')
local function has_started_since(ms) -- so it has read its data from a file, perhaps from an older backup
  local uptime_s = redis.call('INFO', 'server'):match('uptime_in_seconds:(%d+)')
  return (redis.call('TIME')[1] - uptime_s) * 1000 > ms
end
if tonumber(ARGV[5]) >= beat and ARGV[6] == replication:match('master_replid2:(%x+)')
  and not has_started_since(tonumber(ARGV[7])) then
  record_discrepancy('heartbeats', ARGV[5], digits(beat - 1))
end
local reply = {digits(server_ms()), digits(time), began, redis.call('GET', KEYS[1]), is_nearly_full(),
  beat, replication:match('master_replid:(%x+)') or ''}
local all = redis.call('HGETALL', spools)
for i = 1, #all, 2 do
  if time - all[i + 1]:match('%d+$') > SPOOL_GIVEN_UP_MS and SPOOL_GIVEN_UP_MS > 0 then
    redis.call('HDEL', spools, all[i])
    reply[#reply + 1] = all[i]
  end
end
return reply
