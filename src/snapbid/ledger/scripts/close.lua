-- include base
-- Closes a shard; if it is already closed, replaces the reason (admin/closing.py).
--
-- ARGV[1]  the reason
if redis.call('EXISTS', base .. 'closed') == 0 then
  for _, name in ipairs({'r', 'e'}) do
    if redis.call('EXISTS', base .. name) == 1 then
      redis.call('RENAME', base .. name, base .. 'closed:' .. name)
    end
    redis.call('SET', base .. name, 'closed')
  end
end
redis.call('SET', base .. 'closed', ARGV[1])
