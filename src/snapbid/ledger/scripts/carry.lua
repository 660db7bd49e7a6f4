-- Adds to budgets what the warehouse knows to be spent and this data set does not.
--
-- KEYS[1]  {sbN}:epoch, see segment.lua and money.lua
-- ARGV     1 the segment to which it is to be added; 2 the day (since 1970-01-01); 3... campaign,
--          spend in all, and by bids of that day (nano-USD)
-- Returns  1, or 0 with nothing added where another segment is counted in
if current_segment() ~= ARGV[1] then
  return 0
end
for i = 3, #ARGV, 3 do
  local allowance = base .. 'm:' .. ARGV[i]
  redis.pcall('HINCRBY', allowance, 't', ARGV[i + 1]) -- nothing is done beyond 64 bits
  redis.pcall('HINCRBY', allowance, 'd' .. ARGV[2], ARGV[i + 2])
end
return 1
