-- Removes the names of absorbed counters, unless another drain has taken over or the data has been
-- replaced since it was read.
--
-- KEYS     1 and 2 as in every script (`ShardKeys.script_keys`); 3 {sbN}:d:owner, the token of the
--          drain that owns the shard; 4 {sbN}:d:taken; 5 {sbN}:segment
-- ARGV     1 the caller's token; 2 the number of the last batch that the warehouse has absorbed;
--          3 the run of Redis in which it was read; 4 the number of names read in all
-- Returns  1 if the names were removed, else 0
if redis.call('GET', KEYS[3]) ~= ARGV[1]
  or redis.call('HGET', KEYS[5], 'read') ~= ARGV[2]
  or redis.call('INFO', 'server'):match('run_id:(%x+)') ~= ARGV[3]
  or redis.call('SCARD', KEYS[4]) > tonumber(ARGV[4]) then
  return 0
end
redis.call('UNLINK', KEYS[4])
redis.call('HSET', KEYS[5], 'released', ARGV[2])
return 1
