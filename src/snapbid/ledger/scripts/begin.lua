-- Begins a segment unless this run of Redis has one; for each new connection, and for the drain.
--
-- KEYS[1]  {sbN}:epoch, see segment.lua
-- ARGV[1]  of a worker, its warehouse, where it knows it: the ledger's from now on, if it has none.
--          Where the ledger is closed (closing.py), workers are refused; the drain, which has no
--          arguments, only while it is being filled
-- ARGV[2]  of who fills a closed ledger, anything
-- Returns the epoch, the segment, and the other fields of {sbN}:segment as keys.py lists them.
local closed = redis.call('GET', base .. 'closed')
if closed and not ARGV[2] and (ARGV[1] or closed:sub(1, 4) == 'fill') then
  return redis.error_reply('CLOSED the ledger is ' .. closed)
end
local name = enter_segment()
if ARGV[1] and ARGV[1] ~= '' then
  redis.call('HSETNX', state_key, 'warehouse', ARGV[1])
end
return {redis.call('GET', KEYS[1]), name, unpack(redis.call('HMGET', state_key,
  'confirmed', 'carried', 'warehouse', 'read', 'released', 'outdated', 'moved', 'moved_from', 'shards'))}
