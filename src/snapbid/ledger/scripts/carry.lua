-- include base
-- include segment
-- Adds to budgets the spend that the warehouse has and this data set lacks.
--
-- KEYS[1]  {sbN}:epoch, see segment.lua and money.lua
-- ARGV     1 the segment to add to; 2 the day (since 1970-01-01); 3... for each campaign its number,
--          total spend, and spend by bids of that day (nano-USD)
-- Returns  1; or 0, with nothing added, if another segment is current
if current_segment() ~= ARGV[1] then
  return 0
end
for i = 3, #ARGV, 3 do
  local allowance = base .. 'm:' .. ARGV[i]
  redis.pcall('HINCRBY', allowance, 't', ARGV[i + 1]) -- fails beyond 64 bits, leaving it unchanged
  redis.pcall('HINCRBY', allowance, 'd' .. ARGV[2], ARGV[i + 2])
end
return 1
