-- include allowances
-- Reads the use and holds of campaigns, after ending the holds that are due.
--
-- ARGV     1 now (epoch ms); 2... campaigns
-- Returns  for each campaign: used in total, used today, and a list of its holds: 1 for those of today's
--          bids, else 0, and the amount
local states = {}
for i = 2, #ARGV do
  local allowance = open_allowance(ARGV[i])
  local values, held = redis.call('HMGET', allowance.key, 't', day_field), {}
  for _, name in ipairs(redis.call('ZRANGE', allowance.queue, 0, -1)) do
    local amount = redis.call('HGET', allowance.key, 'e' .. name)
    if amount then
      held[#held + 1] = 'd' .. name:match('^%d+:(%d+)') == day_field and 1 or 0
      held[#held + 1] = amount
    end
  end
  states[#states + 1] = {values[1] or '0', values[2] or '0', held}
end
return states
