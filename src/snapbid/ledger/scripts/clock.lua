-- include base
-- include now
-- The hold clock, by which holds end.
--
--   {sbN}:h        clock: the hold clock (ms); at: the server's time when it was last set; back: the
--                  highest time that the server can have shown before its clock was set back; ahead: its
--                  times before and after its clock was set ahead, for the last few such changes; beats:
--                  number of the last heartbeat
--   {sbN}:spools   token of each process that may have acknowledged notices still unknown to Redis ->
--                  time up to which all are settled, and time of its last heartbeat (hold clock)
--   {sbN}:outboxes number of each shard with an outbox (money.lua) -> time up to which it is delivered
--                  to users of this shard, and time of the last report (hold clock)
--   {sbN}:delivered  mark: the least of the former times, and when it was computed
--   {sbN}:spools:left  tokens of processes that were signed off; score = when (hold clock)
--
-- The hold clock advances by the time between two script calls, unless that exceeds a second: so it
-- ignores changes of the server's clock, and stops while nobody reaches Redis. A hold ends only once every
-- notice acknowledged before its end is settled, by the earliest time in {sbN}:spools.

local function server_ms()
  if SIMULATED then
    return now_ms
  end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local NOTED_STEP_BACK_MS, NOTED_STEP_AHEAD_MS = 50, 60000

local clock
local function hold_clock()
  if not clock then
    local key, time = base .. 'h', server_ms()
    local set = redis.call('HMGET', key, 'clock', 'at')
    local step = set[2] and time - set[2]
    clock = tonumber(set[1] or 0)
    if step and step > 0 and step <= LARGEST_STEP_MS then
      clock = clock + step
    end
    if step and step < -NOTED_STEP_BACK_MS then
      local back = tonumber(redis.call('HGET', key, 'back') or 0)
      redis.call('HSET', key, 'back', digits(math.max(back, set[2] + LARGEST_STEP_MS)))
    end
    if step and step > NOTED_STEP_AHEAD_MS then -- or nobody has called for that long
      local former = redis.call('HGET', key, 'ahead') or ''
      former = former:match('%d+ %d+ %d+ %d+$') or former
      redis.call('HSET', key, 'ahead', former .. ' ' .. digits(set[2]) .. ' ' .. digits(time))
    end
    if not step or step < 0 or step >= 500 then -- below the largest step, so no time is lost
      redis.call('HSET', key, 'clock', digits(clock), 'at', digits(time))
    end
  end
  return clock
end

-- Whether a server time (ms) is later than any time shown before its clock was set back.
local function is_past_steps(time)
  return time > tonumber(redis.call('HGET', base .. 'h', 'back') or 0)
end

-- Converts a caller's time (ms) to server time if the server's clock was set ahead a moment ago, and the
-- caller may not have noticed yet.
local UNNOTICED_MS = 10000
local ahead
local function as_server_time(time)
  if not ahead then
    hold_clock() -- notes that the clock was set
    ahead = redis.call('HGET', base .. 'h', 'ahead') or ''
  end
  for before, after in ahead:gmatch('(%d+) (%d+)') do
    if time >= before - LARGEST_STEP_MS and time <= before + UNNOTICED_MS then
      time = math.min(time + after - before, server_ms())
    end
  end
  return time
end

local function settled_mark(mark, key) -- time up to which all have settled that report in `key`
  for _, report in ipairs(redis.call('HVALS', key)) do
    local settled, seen = report:match('^(%d+) (%d+)$')
    if hold_clock() - seen <= SPOOL_GIVEN_UP_MS then
      mark = math.min(mark, tonumber(settled))
    end
  end
  return mark
end

local mark
local function watermark() -- holds that are due by this time of the hold clock have ended
  if not mark then
    mark = settled_mark(hold_clock(), base .. 'spools')
  end
  return mark
end
