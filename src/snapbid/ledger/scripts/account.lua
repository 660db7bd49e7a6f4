-- include base
-- include discrepancies
-- Replaces the states of campaigns' accounts by compare-and-set (escrow.py).
--
-- ARGV     1 expiry of an account (s); then for each account its campaign, its state as read (empty:
--          none), the new state, and two amounts: what allowances were granted, and what the account knew
--          of that. They only differ if another allocator has granted more, and thereby changed the account
-- Returns  for each account 1 if it was replaced, else 0
local reply = {}
for i = 2, #ARGV, 5 do
  local key = base .. 'account:' .. ARGV[i]
  local is_same = (redis.call('GET', key) or '') == ARGV[i + 1]
  if is_same then
    redis.call('SET', key, ARGV[i + 2], 'EX', ARGV[1])
    if ARGV[i + 3] ~= ARGV[i + 4] then
      record_discrepancy('grants ' .. ARGV[i], ARGV[i + 3], ARGV[i + 4])
    end
  end
  reply[#reply + 1] = is_same and 1 or 0
end
return reply
