-- include base
-- include money
-- Posts notices for a user's impressions to an outbox, in a ledger with several shards (money.lua).
--
-- An entry, for the user's shard: uint8 kind of the notice or FORGOTTEN, uint32 campaign, 16 bytes user,
-- 20 bytes member, uint32 longest window (s), uint32 + uint16 when the notice arrived (epoch s, ms).
local function post(digest, record, kind, came_ms)
  local shard, came = struct.unpack('<I4', record.user) % SHARDS, math.floor(came_ms / 1000)
  local added = redis.call('SADD', base .. 'o:' .. shard, struct.pack('<BI4c16c20I4I4I2', kind,
    record.campaign, record.user, cap_member(digest, record), record.longest, came, came_ms % 1000))
  redis.call('HINCRBY', base .. 'posted', shard, added)
end
