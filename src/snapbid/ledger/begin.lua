-- Begins a segment unless this run of Redis has one; for each new connection, and for the drain.
--
-- KEYS[1]  {sbN}:epoch, see segment.lua
-- Returns the epoch, the segment, and the other fields of {sbN}:segment as keys.py lists them.
local name = enter_segment()
return {redis.call('GET', KEYS[1]), name, unpack(redis.call('HMGET', state_key,
  'confirmed', 'carried', 'warehouse', 'read', 'released', 'ssps', 'campaigns'))}
