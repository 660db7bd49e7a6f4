-- include base
-- include now
-- include time_buckets
-- include clock
-- Signs a process off, which has no notices left for which holds must wait.
--
-- One of its heartbeats may still be under way, and must not revive it. So its token is kept for as long as
-- holds would wait for the process (heartbeat.lua).
--
-- ARGV     1 now (epoch ms); 2 token of the process
time_buckets() -- raises an error if the ledger is closed (closing.py)
local left, time = base .. 'spools:left', hold_clock()
redis.call('HDEL', base .. 'spools', ARGV[2])
redis.call('ZREMRANGEBYSCORE', left, '-inf', digits(time - SPOOL_GIVEN_UP_MS))
redis.call('ZADD', left, digits(time), ARGV[2])
