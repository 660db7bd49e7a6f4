-- include allowances
-- Reads what campaigns have used and hold, after ending the holds that are due.
--
-- ARGV     1 now (epoch ms); 2... campaigns
-- Returns  for each: used in total, used today, and a list with, for each hold, 1 if it is of today's
--          bids, else 0, and its amount
local states = {}
for i = 2, #ARGV do
  local allowance = open_allowance(ARGV[i])
  local values, held = redis.call('HMGET', allowance.key, 't', today), {}
  for _, name in ipairs(redis.call('ZRANGE', allowance.queue, 0, -1)) do
    local amount = redis.call('HGET', allowance.key, 'e' .. name)
    if amount then
      held[#held + 1] = 'd' .. name:match('^%d+:(%d+)') == today and 1 or 0
      held[#held + 1] = amount
    end
  end
  states[#states + 1] = {values[1] or '0', values[2] or '0', held}
end
return states
