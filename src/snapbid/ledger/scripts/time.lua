-- Reads the time of the server that has the shard.
return redis.call('TIME')
