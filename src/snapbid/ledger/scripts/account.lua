-- Replaces the states of campaigns' accounts, each if nobody else has (escrow.py).
--
-- ARGV     1 for how long they are kept (s); then for each its campaign, its state as it was read,
--          empty for none, and the new one
-- Returns  1 for each that was replaced, else 0
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
