-- Which run of Redis is counting (contract 5, point 3): what stands before each script.
--
-- All keys share the hash tag of KEYS[1], {sbN}:epoch. What one run of Redis counts goes to counters
-- of its own, a segment, which begin at zero: an older copy of the data, given to a later run, holds
-- segments that the warehouse knows already, and cannot take back what they have counted since.
-- So does a run that was given other data without a restart, by REPLICAOF and REPLICAOF NO ONE: it names
-- as its `origin` the primary whose data it had before (master_replid2), another one each time. Looking
-- takes 1 µs a batch.
local base = KEYS[1]:sub(1, -6)
local state_key = base .. 'segment'

-- The segment of this run of Redis, begun if there is none. Of the segment before it is noted up to which
-- batch the drain had read it (drain/fence.py).
local function enter_segment()
  local run = redis.call('INFO', 'server'):match('run_id:(%x+)')
  local origin = redis.call('INFO', 'replication'):match('master_replid2:(%x+)') or ''
  local state = redis.call('HMGET', state_key, 'run', 'segment', 'origin', 'read')
  if state[1] == run and state[3] == origin and redis.call('EXISTS', KEYS[1]) == 1 then
    return state[2]
  end
  if state[2] then
    redis.call('HSET', base .. 'left', state[2], state[4] or 0)
  end
  local time = redis.call('TIME')
  local seed = table.concat({run, time[1], time[2], origin, state[2] or ''}, ' ')
  redis.call('SET', KEYS[1], redis.sha1hex(seed):sub(1, 16), 'NX')
  local name = redis.sha1hex(KEYS[1] .. ' ' .. seed):sub(1, 10)
  redis.call('HSET', state_key, 'run', run, 'origin', origin, 'segment', name)
  local began = string.format('%d.%03d', time[1], math.floor(time[2] / 1000))
  redis.call('HSET', base .. 'segments', name, began)
  if not state[1] and redis.call('HEXISTS', state_key, 'warehouse') == 1 then -- drain/adopt.py
    redis.call('HSET', state_key, 'adopted', began)
  end
  return name
end

local segment, confirmed
local function current_segment()
  if not segment then
    local state = redis.call('HMGET', state_key, 'segment', 'confirmed', 'origin')
    local origin = 'master_replid2:' .. (state[3] or '-')
    segment = redis.call('INFO', 'replication'):find(origin, 1, true) and state[1]
      or enter_segment() -- the data was lost, or is another, under an open connection
    confirmed = state[2] == segment
  end
  return segment
end

local function began_ms(began) -- in ms, of epoch s with a fraction
  return math.floor(began * 1000 + 0.5)
end

-- Whether some run of Redis began, or another warehouse adopted the ledger, after the one time (epoch ms)
-- and until the other: what was before it may be lost.
local function began_between(after_ms, until_ms)
  local began = redis.call('HVALS', base .. 'segments')
  began[#began + 1] = redis.call('HGET', state_key, 'adopted') or nil
  for _, time in ipairs(began) do
    time = began_ms(time)
    if after_ms < time and time <= until_ms then
      return true
    end
  end
  return false
end

-- Whether the drain has seen to it that budgets know what the warehouse knows.
local function has_confirmed_budgets()
  current_segment()
  return confirmed
end

-- The key of a day's counters, and what stands before their names where it is told that they changed.
local function counters_of(day)
  local name = current_segment()
  return base .. 'c:' .. name .. ':' .. day, name .. ' ' .. day .. ' '
end
