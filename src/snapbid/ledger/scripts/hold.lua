-- include money
-- include caps
-- Holds impressions of capped users in the user's shard, before the bids are remembered in the auction's
-- shard; or ends the holds of bids that were not kept.
--
-- ARGV     1 now (epoch ms); 2 duration of a hold (s); 3 the holds, each uint32 campaign, 16 bytes user,
--          20 bytes member (outbox.lua), uint16 length, limits; empty limits end the hold
-- Returns  a letter for each hold: k done, c over a cap
local hold_s, entries, at, size, letters = tonumber(ARGV[2]), ARGV[3], 1, #ARGV[3], {}
while at <= size do
  local campaign, user, member, packed
  campaign, user, member, packed, at = struct.unpack('<I4c16c20I2c0', entries, at)
  local letter = 'k'
  if packed == '' then
    redis.call('ZREM', (cap_keys(campaign, user)), member)
  else
    local fits, holds, sweeps = within_caps(parse_limits(packed), user)
    if fits then
      hold_impression(holds, member, hold_s, sweeps)
    else
      letter = 'c'
    end
  end
  letters[#letters + 1] = letter
end
return table.concat(letters)
