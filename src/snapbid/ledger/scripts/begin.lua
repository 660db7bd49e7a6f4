-- include base
-- include segment
-- Begins a segment unless this run of Redis has one; called on each new connection, and by the drain.
--
-- KEYS[1]  {sbN}:epoch, see segment.lua
-- ARGV[1]  from a worker: its warehouse (empty: unknown), which becomes the ledger's if that has none. A
--          closed ledger (closing.py) refuses workers; it refuses the drain, which sends no arguments,
--          only while it is being filled
-- ARGV[2]  from a worker: its number of shards, which becomes the ledger's if that has none
-- ARGV[3]  any value, from the process that fills a closed ledger
-- Returns  the epoch, the segment, and other fields of {sbN}:segment (base/redis_keys.py)
local closed = redis.call('GET', base .. 'closed')
if closed and not ARGV[3] and (ARGV[1] or closed:sub(1, 4) == 'fill') then
  return redis.error_reply('CLOSED the ledger is ' .. closed)
end
local name = enter_segment()
if ARGV[2] then
  redis.call('HSETNX', state_key, 'shards', ARGV[2])
end
if ARGV[1] and ARGV[1] ~= '' then
  redis.call('HSETNX', state_key, 'warehouse', ARGV[1])
end
return {redis.call('GET', KEYS[1]), name, unpack(redis.call('HMGET', state_key,
  'confirmed', 'carried', 'warehouse', 'read', 'released', 'outdated', 'moved', 'moved_from', 'shards'))}
