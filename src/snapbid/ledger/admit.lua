-- Whether a bid is within the limits of its campaign.

-- Holds what the limits ask for: the record with the end of its hold; or none, and the letter.
-- The bid stands at a place of `bids`, as in remember.lua.
local function admit(bids, start, value, packed, hold_s)
  local limits, size, user, fits, some_ended = parse_limits(packed), #value, nil, nil, nil
  if #limits.caps > 0 then
    size = size - 20
    user = value:sub(size + 1, size + 16)
    if SHARDS == 1 then -- else hold.lua did that in the user's
      fits, some_ended = within_caps(limits, user)
      if not fits then
        return nil, 'c'
      end
    end
  end
  local id = user and value:sub(15, 18)
  if limits.has_budget then
    hold_for(hold_s)
    local price = value:sub(HEAD_SIZE + 1, size)
    if not afford(open_purse(limits.campaign), price, limits, true) then
      return nil, 'b'
    end
    value = value:sub(1, HEAD_SIZE) .. packed_ends .. (user and value:sub(HEAD_SIZE + 1) or price)
  end
  if user and SHARDS == 1 then
    hold_impression(limits.campaign, user, bids:sub(start + 1, start + 16) .. id, hold_s,
      some_ended)
  end
  return value
end
