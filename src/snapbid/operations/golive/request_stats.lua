-- Adds a worker's batch of request statistics of SSPs (store.py describes the keys).
--
-- KEYS[1]  {golive}:; KEYS[2] {golive}:none
-- ARGV     1 now (epoch s); 2 answers and problems to keep; 3 TTL of a minute (s); 4 TTL of an hour
--          and of a day (s); 5 today, YYYY-MM-DD; 6 writer; 7 number of its batch; then for each
--          SSP: number, count of counters, name and increment of each, count of answers, the
--          answers, count of problems, the problems
local now, kept, at = tonumber(ARGV[1]), tonumber(ARGV[2]), 8
local day, writer, number = ARGV[5], KEYS[1] .. 'w:' .. ARGV[6], tonumber(ARGV[7])
if tonumber(redis.call('GET', writer) or 0) >= number then
  return -- already added: the answer was lost, so the writer sent the batch again
end
redis.call('SET', writer, number, 'EX', 3600)
redis.call('SETNX', KEYS[1] .. 'source', ARGV[5] .. ' ' .. redis.call('TIME')[2])

local function push(key)
  local last = at + tonumber(ARGV[at])
  if last > at then
    redis.call('LPUSH', key, unpack(ARGV, at + 1, last))
    redis.call('LTRIM', key, 0, kept - 1)
    redis.call('EXPIRE', key, ARGV[4])
  end
  at = last + 1
end

while ARGV[at] do
  local base = KEYS[1] .. ARGV[at]
  local minute = base .. ':m:' .. math.floor(now / 60)
  local hour = base .. ':h:' .. math.floor(now / 3600)
  local of_day = base .. ':d:' .. day
  local grown, last = {}, at + 1 + 2 * tonumber(ARGV[at + 1])
  for i = at + 2, last, 2 do
    redis.call('HINCRBY', minute, ARGV[i], ARGV[i + 1])
    redis.call('HINCRBY', hour, ARGV[i], ARGV[i + 1])
    redis.call('HINCRBY', of_day, ARGV[i], ARGV[i + 1])
    grown[#grown + 1] = ARGV[i]
    grown[#grown + 1] = now
  end
  if #grown > 0 then
    redis.call('EXPIRE', minute, ARGV[3])
    redis.call('EXPIRE', hour, ARGV[4])
    redis.call('EXPIRE', of_day, ARGV[4])
    redis.call('SADD', KEYS[1] .. 'changed', ARGV[at] .. ' ' .. day)
    redis.call('HSET', base .. ':at', unpack(grown))
    redis.call('HSETNX', base .. ':at', 'first', now)
  end
  at = last + 1
  push(base .. ':answers')
  push(base .. ':problems')
end
