-- Removes names of counters that were absorbed, unless another drain has taken over.
--
-- KEYS[1]  {sbN}:d:owner, the token of the drain at work; KEYS[2]  {sbN}:d:taken;
-- KEYS[3]  {sbN}:segment
-- ARGV     1 the caller's token; 2 the number of the batch that the warehouse has absorbed (empty:
--          none of it); 3... the names
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('SREM', KEYS[2], unpack(ARGV, 3))
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[3], 'released', ARGV[2])
end
return 1
