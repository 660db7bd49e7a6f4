-- include base
-- include segment
-- Begins a segment unless this run of Redis has one; called on each new connection, and by the drain.
--
-- A closed ledger (closing.py) refuses workers. The drain, which sends no arguments, is refused only
-- while the ledger is being filled.
--
-- KEYS[1]  {sbN}:epoch, see segment.lua
-- ARGV[1]  a worker's warehouse (empty: unknown), which becomes the ledger's unless it has one
-- ARGV[2]  a worker's number of shards, which becomes the ledger's unless it has one
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
