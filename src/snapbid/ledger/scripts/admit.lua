-- include records
-- include money
-- include caps
-- include allowances
-- include budget
-- Checks a bid against the limits of its campaign, and holds its cost and impression.

-- Returns the record with the end of its hold; or nil and the letter of the verdict. The bid starts at
-- offset `start` in `bids`, as in remember.lua.
local function admit(bids, start, value, packed, hold_s)
  local limits, size, user, holds, sweeps, fits = parse_limits(packed), #value, nil, nil, nil, nil
  if #limits.caps > 0 then
    size = size - 20
    user = value:sub(size + 1, size + 16)
    if SHARDS == 1 then -- else hold.lua has done this in the user's shard
      fits, holds, sweeps = within_caps(limits, user)
      if not fits then
        return nil, 'c'
      end
    end
  end
  if limits.has_budget then
    use_budget_of((struct.unpack('<I4', value, 9)))
    hold_for(hold_s)
    local price, allowance = value:sub(HEAD_SIZE + 1, size), open_allowance(limits.campaign)
    local held_until = allowance.is_contested and packed_own_ends or packed_ends
    local is_afforded, letter = afford(allowance, price, limits, true, value)
    if not is_afforded then
      return nil, letter
    end
    value = value:sub(1, HEAD_SIZE) .. held_until .. (user and value:sub(HEAD_SIZE + 1) or price)
  end
  if holds then
    local member = bids:sub(start + 1, start + 16) .. value:sub(15, 18) -- digest and identity
    hold_impression(holds, member, hold_s, sweeps)
  end
  return value
end

-- Releases what `admit` held for a bid that is not kept; to be called after close_allowances.
local function undo_admission(digest, record)
  cancel_hold(record)
  if record.user and SHARDS == 1 then
    redis.call('ZREM', (cap_keys(record.campaign, record.user)), cap_member(digest, record))
  end
end
