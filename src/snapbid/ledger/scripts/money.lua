-- Money and impressions of campaigns: what is held, and what becomes of it (contract 3, Budgets).
--
-- Amounts are nano-USD, so that a plain bid costs exactly its CPM in micro-USD. DAY counts from
-- 1970-01-01. ENDS is when a hold ends, in seconds of the hold clock (clock.lua).
--   {sbN}:m:CAMPAIGN        t: used in total, by spend and live holds; dDAY: used by that day's bids;
--                           eENDS:DAY: held until then by that day's bids; a: the SSP that was last
--                           refused some of it. While it is contested what is held is each SSP's own:
--                           eENDS:DAY:SSP, and the sums of these, hSSP and h
--   {sbN}:contested         {sbN}:m:CAMPAIGN for which several SSPs ask, until when that counts (hold
--                           clock, s)
--   {sbN}:x:CAMPAIGN        ENDS:DAY and ENDS:DAY:SSP of the holds, by ENDS
--   {sbN}:g:CAMPAIGN        where a budget is in escrow, for each period (t: in all, DAY: of one
--                           day) gNAME, rNAME: granted and returned, both cumulative; lNAME: the
--                           allowance that is left of them; wNAME: with less than that unused the
--                           allowance calls for an allocator
--   {sbN}:refused           CAMPAIGN -> the lowest cost that its allowance has refused since it had room
--   {sbN}:wait              CAMPAIGN of these, by when the next of its holds ends
--   {sbN}:calls             CAMPAIGN whose allowance calls, by when an allocator is to come (hold clock);
--                           with one shard, which was refused, by when it has room (server's ms)
--   {sbN}:room              CAMPAIGN that had room again, by the number of that announcement
--   {sbN}:said              number of the last one
--   {sbN}:account:CAMPAIGN     its account, in the shard of the campaign (allocator.py)
--   {sbN}:fe:CAMPAIGN:USER  a user's holds: member = digest and identity of the bid, score = when it
--                           ends, in ms of the hold clock
--   {sbN}:fc:CAMPAIGN:USER  a user's impressions: score = when (epoch ms)
--   {sbN}:o:SHARD           the outbox: what becomes of the impressions of that shard's users (outbox.py)
--
-- With several shards the user has one, in which both are, and the auction's has the outbox.

local function add(key, field, by) -- nothing is done beyond 64 bits
  return type(redis.pcall('HINCRBY', key, field, by)) == 'number'
end

local function end_share(key, ssp, amount) -- rare: of what an SSP holds
  for _, field in ipairs({'h' .. ssp, 'h'}) do
    if redis.call('HINCRBY', key, field, '-' .. amount) <= 0 then
      redis.call('HDEL', key, field)
    end
  end
end

-- Ends the hold of a record, if it has not ended by itself; tells whether it had not.
local OF_SSP = 2147483648 -- added to the end of a hold that is its SSP's own
local function end_hold(record)
  if bit.band(record.kinds, HELD) == 0 then
    return false
  end
  local key, day = base .. 'm:' .. record.campaign, math.floor(record.time / DAY_S)
  local is_own = record.ends >= OF_SSP
  local field = is_own and 'e' .. record.ends - OF_SSP .. ':' .. day .. ':' .. record.ssp
    or 'e' .. record.ends .. ':' .. day
  record.kinds = record.kinds - HELD
  if redis.call('HEXISTS', key, field) == 0 then
    return false
  end
  if redis.call('HINCRBY', key, field, '-' .. record.price) <= 0 then
    redis.call('HDEL', key, field)
  end
  if is_own then
    end_share(key, record.ssp, record.price)
  end
  return true
end

local function pay(record, sign)
  local key = base .. 'm:' .. record.campaign
  if add(key, 't', sign .. record.price) then
    add(key, 'd' .. math.floor(record.time / DAY_S), sign .. record.price)
  end
end

local function pay_back(record) -- there may be room for what was refused
  pay(record, '-')
  if redis.call('HEXISTS', base .. 'refused', record.campaign) == 1 then
    redis.call('ZADD', base .. 'calls', 0, record.campaign)
  end
end

local function release(record) -- the bid is lost, or was never answered
  if end_hold(record) then
    pay_back(record)
  end
end

local function spend(record) -- a win: the hold, if it lives, is spend from now on
  if not end_hold(record) then
    pay(record, '')
  end
end

local function cap_keys(campaign, user) -- holds, impressions
  local name = campaign .. ':' .. user
  return base .. 'fe:' .. name, base .. 'fc:' .. name
end

local function cap_member(digest, record)
  return digest .. struct.pack('<I4', record.id)
end

local FORGOTTEN = 8 -- beside the kinds of notices, in an outbox
