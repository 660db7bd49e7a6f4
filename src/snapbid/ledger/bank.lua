-- Replaces the state of a campaign's bank, if nobody else has (escrow.py).
--
-- KEYS     1 the bank
-- ARGV     1 its state as it was read, empty for none; 2 the new one; 3 for how long (s)
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
return 1
