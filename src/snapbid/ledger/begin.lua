-- Begins a segment unless this run of Redis has one; for each new connection, and for the drain.
--
-- KEYS[1]  {sbN}:epoch, see segment.lua
-- ARGV[1]  the caller's warehouse, where it knows it: the ledger's from now on, if it has none
-- Returns the epoch, the segment, and the other fields of {sbN}:segment as keys.py lists them.
local name = enter_segment()
if ARGV[1] and ARGV[1] ~= '' then
  redis.call('HSETNX', state_key, 'warehouse', ARGV[1])
end
return {redis.call('GET', KEYS[1]), name, unpack(redis.call('HMGET', state_key,
  'confirmed', 'carried', 'warehouse', 'read', 'released', 'outdated'))}
