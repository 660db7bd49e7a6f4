-- Money and impressions of campaigns: what is held, and what becomes of it (contract 3, Budgets).
--
-- Amounts are nano-USD, so that a plain bid costs exactly its CPM in micro-USD. DAY counts from
-- 1970-01-01. ENDS is when a hold ends, in seconds of the hold clock (clock.lua).
--   {sbN}:m:CAMPAIGN        t: used in total, by spend and live holds; dDAY: used by that day's bids;
--                           eENDS:DAY: held until then by that day's bids
--   {sbN}:x:CAMPAIGN        ENDS:DAY of the holds, by ENDS
--   {sbN}:g:CAMPAIGN        where a budget is in escrow, for each account (t: in all, DAY: of one
--                           day) gNAME, rNAME: granted and returned, both cumulative; lNAME: the
--                           allowance that is left of them; wNAME: with less than that unused the
--                           purse calls for a banker
--   {sbN}:refused           CAMPAIGN -> the lowest cost that its purse has refused since it had room
--   {sbN}:wait              CAMPAIGN of these, by when the next of its holds ends
--   {sbN}:calls             CAMPAIGN whose purse calls, by when a banker is to come (server's ms)
--   {sbN}:room              CAMPAIGN that had room again, by the number of that announcement
--   {sbN}:said              number of the last one
--   {sbN}:bank:CAMPAIGN     its bank, in the shard of the campaign (banker.py)
--   {sbN}:fe:CAMPAIGN:USER  a user's holds: member = digest and identity of the bid, score = when it
--                           ends, in ms of the hold clock
--   {sbN}:fc:CAMPAIGN:USER  a user's impressions: score = when (epoch ms)
--   {sbN}:o:SHARD           the outbox: what becomes of the impressions of that shard's users (outbox.py)
--
-- With several shards the user has one, in which both are, and the auction's has the outbox.
local SHARDS = 1 -- scripts.py sets it

local function add(key, field, by) -- nothing is done beyond 64 bits
  return type(redis.pcall('HINCRBY', key, field, by)) == 'number'
end

local function day_field(time)
  return 'd' .. math.floor(time / DAY_S)
end

local function purse_key(campaign)
  return base .. 'm:' .. campaign
end

-- Ends the hold of a record, if it has not ended by itself; tells whether it had not.
local function end_hold(record)
  if bit.band(record.kinds, HELD) == 0 then
    return false
  end
  local key = purse_key(record.campaign)
  local field = 'e' .. record.ends .. ':' .. math.floor(record.time / DAY_S)
  record.kinds = record.kinds - HELD
  if redis.call('HEXISTS', key, field) == 0 then
    return false
  end
  if redis.call('HINCRBY', key, field, '-' .. record.price) <= 0 then
    redis.call('HDEL', key, field)
  end
  return true
end

local function pay(record, sign)
  local key = purse_key(record.campaign)
  if add(key, 't', sign .. record.price) then
    add(key, day_field(record.time), sign .. record.price)
  end
end

local function release(record) -- the bid is lost, or was never answered
  if end_hold(record) then
    pay(record, '-')
    if SHARDS > 1 and redis.call('HEXISTS', base .. 'refused', record.campaign) == 1 then
      redis.call('ZADD', base .. 'calls', 0, record.campaign)
    end
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

-- With several shards, for the user's: a notice's kind or what follows, uint32 campaign, 16 bytes user,
-- 20 bytes member, uint32 longest window (s), uint32 + uint16 when the notice came (epoch s, ms).
local FORGOTTEN = 8
local function post(digest, record, kind, came_ms)
  local shard, came = struct.unpack('<I4', record.user) % SHARDS, math.floor(came_ms / 1000)
  redis.call('SADD', base .. 'o:' .. shard, struct.pack('<BI4c16c20I4I4I2', kind, record.campaign,
    record.user, cap_member(digest, record), record.longest, came, came_ms % 1000))
end

local function forget_impression(digest, record) -- held or counted
  if record.user and SHARDS > 1 then
    post(digest, record, FORGOTTEN, now_ms)
  elseif record.user then
    local holds, impressions = cap_keys(record.campaign, record.user)
    redis.call('ZREM', holds, cap_member(digest, record))
    redis.call('ZREM', impressions, cap_member(digest, record))
  end
end

-- A capped user's hold becomes an impression with a win or a billing, and ends with a loss. The time
-- of an impression is that of the billing, where there is one.
local function settle_cap(digest, record, kind, came_ms)
  if SHARDS > 1 then
    if bit.band(record.kinds, kind == LOSS and WIN + BILLING or BILLING) == 0 then
      post(digest, record, kind, came_ms)
    end
    return
  end
  local holds, impressions = cap_keys(record.campaign, record.user)
  local member, longest = cap_member(digest, record), record.longest
  if kind ~= LOSS then
    redis.call('ZREM', holds, member)
    if kind == BILLING or bit.band(record.kinds, BILLING) == 0 then
      redis.call('ZADD', impressions, digits(came_ms), member)
      redis.call('ZREMRANGEBYSCORE', impressions, '-inf', digits(now_ms - longest * 1000))
      redis.call('EXPIRE', impressions, digits(longest + 60))
    end
  elseif bit.band(record.kinds, WIN + BILLING) == 0 then
    redis.call('ZREM', holds, member)
  end
end
