-- Says that a process is there, what its TTL is, and up to when its notices are settled.
--
-- A process that was signed off while this was under way stays so (sign_off.lua).
--
-- ARGV     1 now (epoch ms); 2 how long a bid is remembered (s); 3 token of the process, empty where
--          it has no spool; 4 time of the hold clock (ms) up to
--          which every notice that it acknowledged is settled, empty: as before
-- Returns  the server's time (epoch ms), that of the hold clock (ms), and the tokens of processes
--          that were given up
local ttls, ttl = base .. 'ttl', ARGV[2]
local announced = redis.call('HGET', ttls, ttl)
if not announced or math.abs(now - announced) >= 60 then
  local longest = longest_ttl(0)
  redis.call('HSET', ttls, ttl, digits(now))
  if tonumber(ttl) > longest then
    redis.call('HDEL', base .. 'r', 'current') -- the next granule lasts long enough
  end
end

local time, spools, token = hold_clock(), base .. 'spools', ARGV[3]
local known = redis.call('HGET', spools, token)
if token ~= '' and (known or not redis.call('ZSCORE', base .. 'spools:left', token)) then
  local settled, before, heard = tonumber(ARGV[4]), nil, nil
  if known then
    before, heard = known:match('^(%d+) (%d+)$')
  end
  settled = math.min(settled or tonumber(before) or watermark(), time)
  if not known or time - heard >= 900 or heard - time > 0 then
    redis.call('HSET', spools, token, digits(settled) .. ' ' .. digits(time))
  end
end
local reply, all = {digits(server_ms()), digits(time)}, redis.call('HGETALL', spools)
for i = 1, #all, 2 do
  if time - all[i + 1]:match('%d+$') > SPOOL_GIVEN_UP_MS and SPOOL_GIVEN_UP_MS > 0 then
    redis.call('HDEL', spools, all[i])
    reply[#reply + 1] = all[i]
  end
end
return reply
