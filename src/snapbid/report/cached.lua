-- Reads a stored report, and how long it is still stored (ms).
return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}
