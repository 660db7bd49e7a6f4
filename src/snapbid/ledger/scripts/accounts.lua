-- What the accounts of campaigns have (escrow.py), and the run of Redis that says so.
--
-- ARGV     campaigns
-- Returns  the segment; then of each campaign its account's state, empty for none
local reply = {enter_segment()}
for _, campaign in ipairs(ARGV) do
  reply[#reply + 1] = redis.call('GET', base .. 'account:' .. campaign) or ''
end
return reply
