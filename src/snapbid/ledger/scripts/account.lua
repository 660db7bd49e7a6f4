-- include base
-- Replaces the states of campaigns' accounts by compare-and-set (escrow.py).
--
-- ARGV     1 expiry of an account (s); then for each account its campaign, its state as read (empty:
--          none), and the new state
-- Returns  for each account 1 if it was replaced, else 0
local reply = {}
for i = 2, #ARGV, 3 do
  local key = base .. 'account:' .. ARGV[i]
  local is_same = (redis.call('GET', key) or '') == ARGV[i + 1]
  if is_same then
    redis.call('SET', key, ARGV[i + 2], 'EX', ARGV[1])
  end
  reply[#reply + 1] = is_same and 1 or 0
end
return reply
