-- Counts the changed counters that wait for the drain, in one step since it moves their names around.
--
-- KEYS[1]  {sbN}:d; KEYS[2]  {sbN}:d:taken
return redis.call('SCARD', KEYS[1]) + redis.call('SCARD', KEYS[2])
