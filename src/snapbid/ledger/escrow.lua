-- The purse of a campaign in this shard: hears what its bank has, and gives back (escrow.py).
--
--   {sbN}:g:CAMPAIGN        for each account (t: in all, DAY: of one day) gNAME, rNAME: granted and
--                           returned, both cumulative; lNAME: the allowance that is left of them;
--                           n: bids that were refused since somebody last asked
--
-- ARGV     1 now (epoch ms); 2 campaign; then for each account: 3 its name, 4 granted and 5 returned
--          as the bank has them, 6 what was returned when 7 an amount to give back was decided on
-- Returns  refused bids; then for each account granted, returned, used
local purse, key = open_purse(ARGV[2]), allowance_key(ARGV[2])

local function move(name, from, to) -- the allowance, with a figure that grows
  redis.call('HINCRBY', key, name, to)
  redis.call('HINCRBY', key, name, '-' .. from)
end

local function forget_accounts(before) -- of days
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local day = tonumber(field:sub(2))
    if day and day < before then
      redis.call('HDEL', key, field)
    end
  end
end

local reply = {tonumber(redis.call('HGET', key, 'n') or 0)}
redis.call('HDEL', key, 'n')
for i = 3, #ARGV, 5 do
  local name, granted, returned, expected, amount = unpack(ARGV, i, i + 4)
  local own = redis.call('HMGET', key, 'g' .. name, 'r' .. name)
  local left, own_granted, own_returned = 'l' .. name, own[1] or '0', own[2] or '0'
  if not own[1] and name ~= 't' then
    forget_accounts(tonumber(name) - 2)
  end
  if not at_most(granted, own_granted) then
    redis.call('HSET', key, 'g' .. name, granted)
    move(left, own_granted, granted)
    own_granted = granted
  end
  if not at_most(returned, own_returned) then
    redis.call('HSET', key, 'r' .. name, returned)
    move(left, returned, own_returned)
    own_returned = returned
  end
  local used = redis.call('HGET', purse.key, name == 't' and name or 'd' .. name) or '0'
  if amount ~= '0' and expected == own_returned then
    redis.call('HINCRBY', key, left, '-' .. amount)
    local rest = redis.call('HGET', key, left)
    if rest:sub(1, 1) ~= '-' and at_most(used, rest) then
      redis.call('HINCRBY', key, 'r' .. name, amount)
      own_returned = redis.call('HGET', key, 'r' .. name)
    else
      redis.call('HINCRBY', key, left, amount)
    end
  end
  reply[#reply + 1] = own_granted
  reply[#reply + 1] = own_returned
  reply[#reply + 1] = used
end
return reply
