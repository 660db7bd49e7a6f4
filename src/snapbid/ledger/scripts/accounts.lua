-- include base
-- include segment
-- Reads the accounts of campaigns (escrow.py), and the current segment.
--
-- ARGV     campaigns
-- Returns  the segment; then for each campaign the state of its account (empty: none)
local reply = {enter_segment()}
for _, campaign in ipairs(ARGV) do
  reply[#reply + 1] = redis.call('GET', base .. 'account:' .. campaign) or ''
end
return reply
