-- Sets fields of a shard's state, provided that the segment is still current.
--
-- KEYS[1]  {sbN}:segment
-- ARGV     1 the segment; then pairs: a field, and its value (empty: the field is removed)
-- Returns  1; or 0, with nothing changed, if another segment is current
if redis.call('HGET', KEYS[1], 'segment') ~= ARGV[1] then
  return 0
end
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return 1
