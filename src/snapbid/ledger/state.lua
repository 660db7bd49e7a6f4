-- What campaigns have used and hold, after the holds that are due have ended.
--
-- KEYS[1]  {sbN}:epoch, see limits.lua
-- ARGV     1 now (epoch s); 2 how long money is held (s); 3... campaigns
-- Returns for each: used in total, used today, and what each second with a hold holds.
local now, hold_s = tonumber(ARGV[1]), tonumber(ARGV[2])
local found = {}
for i = 3, #ARGV do
  local purse = open_purse(ARGV[i], now, hold_s)
  local values = redis.call('HMGET', purse.key, 't', purse.today)
  local held, today = {}, {}
  for _, second in ipairs(redis.call('LRANGE', purse.queue, 0, -1)) do
    local amount = not held[second] and redis.call('HGET', purse.key, 'h' .. second)
    if amount then
      held[second] = true
      today[#today + 1] = day_field(second) == purse.today and 1 or 0
      today[#today + 1] = amount
    end
  end
  found[#found + 1] = {values[1] or '0', values[2] or '0', today}
end
return found
