-- Signs a process off: it has no notices left for which holds would have to wait.
--
-- A heartbeat of it may still be under way, so its token is kept for as long as holds would wait for
-- it if that were taken for a sign of life (heartbeat.lua).
--
-- ARGV     1 now (epoch ms); 2 token of the process
time_buckets() -- raises an error where the ledger is closed (closing.py)
local left, time = base .. 'spools:left', hold_clock()
redis.call('HDEL', base .. 'spools', ARGV[2])
redis.call('ZREMRANGEBYSCORE', left, '-inf', digits(time - SPOOL_GIVEN_UP_MS))
redis.call('ZADD', left, digits(time), ARGV[2])
