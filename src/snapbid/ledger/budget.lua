-- Whether a bid is within the budget of its campaign, in a ledger of one shard.

-- Whether the price (digits) is within the limits; it is held then, where `holds` is true.
local function afford(purse, price, limits, holds)
  return has_confirmed_budgets() and within(purse, price, limits, holds)
end

local function close_purses()
  for _, purse in pairs(purses) do
    close_purse(purse)
  end
end
