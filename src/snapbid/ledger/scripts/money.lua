-- include base
-- include counters
-- include records
-- include headroom
-- Money and impressions of campaigns: holds and spend (contract 3, Budgets).
--
-- Amounts are nano-USD: the cost of a plain bid is then exactly its CPM in micro-USD. DAY counts from
-- 1970-01-01. ENDS is the end of a hold, in seconds of the hold clock (clock.lua).
--   {sbN}:m:CAMPAIGN        t: used in total, by spend and live holds; dDAY: used by that day's bids;
--                           eENDS:DAY: held until ENDS by that day's bids; a: the SSP that was refused
--                           last, for a variant its family's number. While the budget is contested,
--                           holds are counted by SSP: eENDS:DAY:SSP, and summed by SSP and in total:
--                           hSSP, h
--   {sbN}:contested         {sbN}:m:CAMPAIGN for which several SSPs compete -> until when (hold clock, s)
--   {sbN}:x:CAMPAIGN        ENDS:DAY and ENDS:DAY:SSP of the holds, by ENDS
--   {sbN}:g:CAMPAIGN        for a budget in escrow, by period NAME (t: in total, DAY: of one day):
--                           gNAME, rNAME: granted and returned, both cumulative; lNAME: granted less
--                           returned, which may be used; wNAME: with less than this unused, the allowance
--                           requests a refill
--   {sbN}:refused           CAMPAIGN -> the lowest cost refused since its last release
--   {sbN}:until:hold        the same campaigns, by when their next hold ends (hold clock, s)
--   {sbN}:until:pacing      those that pacing holds back, by when it allows that cost (server's ms); only
--                           with one shard
--   {sbN}:releases          CAMPAIGN with headroom again, by the number of its release
--   {sbN}:released          the number of the last release
--   {sbN}:refills           CAMPAIGN with a refill request, by when an allocator may take it (hold clock,
--                           ms); only with several shards
--   {sbN}:account:CAMPAIGN  its account, in the shard of the campaign (allocator.py)
--   {sbN}:fe:CAMPAIGN:USER  a user's holds: member = digest and identity of the bid, score = its end
--                           (hold clock, ms)
--   {sbN}:fc:CAMPAIGN:USER  a user's impressions: score = when (epoch ms)
--   {sbN}:o:SHARD           the outbox: notices for impressions of that shard's users (outbox.py)
--   {sbN}:posted            SHARD -> number of entries in its outbox
--
-- With several shards, fe and fc are in the shard of the user, the outbox in that of the auction.

local function add(key, field, by) -- returns false, unchanged, beyond 64 bits
  return type(redis.pcall('HINCRBY', key, field, by)) == 'number'
end

local function end_share(key, ssp, amount) -- subtracts a hold from the sums by SSP
  for _, field in ipairs({'h' .. ssp, 'h'}) do
    if redis.call('HINCRBY', key, field, '-' .. amount) <= 0 then
      redis.call('HDEL', key, field)
    end
  end
end

-- Ends the hold of a record; returns false if it has already ended.
local OF_SSP = 2147483648 -- added to the end of a hold that is counted by SSP
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

local function pay_back(record)
  pay(record, '-')
  if redis.call('HEXISTS', base .. 'refused', record.campaign) == 1 then
    reconsider(record.campaign)
  end
end

local function cancel_hold(record) -- the bid is lost, or was never answered
  if end_hold(record) then
    pay_back(record)
  end
end

local function spend(record) -- on a win, turns a live hold into spend
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

local FORGOTTEN = 8 -- in an outbox, instead of a notice's kind: the bid was rolled back
