-- include segment
-- include caps
-- include allowances
-- include budget
-- Checks bids against their limits. Holds and counts nothing, but campaigns that it refuses are released
-- once they have headroom, as after a refused bid.
--
-- ARGV     1 now (epoch ms); 2 the bids, each uint8 length, price (digits), uint8 length, user (empty:
--          caps are not checked), uint16 length, limits
-- Returns  a letter for each bid: k would be kept, b over the budget, c over a cap, w the drain has not
--          restored the budget yet
local bids, at, size, letters = ARGV[2], 1, #ARGV[2], {}
while at <= size do
  local price, user, packed
  price, user, packed, at = struct.unpack('<Bc0Bc0I2c0', bids, at)
  local letter = 'k'
  if packed ~= '' then
    local limits = parse_limits(packed)
    if user ~= '' and not within_caps(limits, user) then
      letter = 'c'
    elseif limits.has_budget and not has_confirmed_budgets() then
      letter = 'w'
    elseif limits.has_budget
      and not afford(open_allowance(limits.campaign), price, limits, false) then
      letter = 'b'
    end
  end
  letters[#letters + 1] = letter
end
close_allowances()
return table.concat(letters)
