-- The time by the caller's clock, which follows that of Redis (ledger/bids/clock.py).
--
-- ARGV[1]  the caller's time (epoch ms)
local now_ms = tonumber(ARGV[1])
local now = math.floor(now_ms / 1000)

local function digits(number) -- formats a whole number, however large
  return string.format('%.0f', number)
end
