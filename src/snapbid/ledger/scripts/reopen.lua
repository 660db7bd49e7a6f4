-- include base
-- Opens a closed shard; leaves an open one as it is (admin/closing.py).
if redis.call('DEL', base .. 'closed') == 1 then
  for _, name in ipairs({'r', 'e'}) do
    redis.call('DEL', base .. name)
    if redis.call('EXISTS', base .. 'closed:' .. name) == 1 then
      redis.call('RENAME', base .. 'closed:' .. name, base .. name)
    end
  end
end
