-- include base
-- Identifies the current run of Redis (contract 5, point 3).
--
-- Each run of Redis has its own counters, a segment, which start at zero. So if a later run starts from an
-- older copy of the data, the warehouse knows the segments in it, and nothing counted since is undone. A new
-- segment also begins if a run gets other data without a restart, by REPLICAOF and REPLICAOF NO ONE: each
-- time its `origin`, the primary that it replicated before (master_replid2), becomes another. The check takes
-- 1 µs a batch.
local state_key = base .. 'segment'

-- Returns the segment of this run of Redis, beginning one if there is none. For the former segment, records
-- the last batch that the drain had read (drain/fence.py).
local function enter_segment()
  local run = redis.call('INFO', 'server'):match('run_id:(%x+)')
  local origin = redis.call('INFO', 'replication'):match('master_replid2:(%x+)') or ''
  local state = redis.call('HMGET', state_key, 'run', 'segment', 'origin', 'read')
  -- A primary without replicas forgets after an hour whom it replicated: its origin becomes 0.
  if state[1] == run and (state[3] == origin or not origin:find('[^0]'))
    and redis.call('EXISTS', KEYS[1]) == 1 then
    if state[3] ~= origin then
      redis.call('HSET', state_key, 'origin', origin)
    end
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

local segment, confirmed, owner
local function current_segment()
  if not segment then
    local state = redis.call('HMGET', state_key, 'segment', 'confirmed', 'origin', 'warehouse')
    local origin = 'master_replid2:' .. (state[3] or '-')
    segment = redis.call('INFO', 'replication'):find(origin, 1, true) and state[1]
      or enter_segment() -- the data was lost or replaced under an open connection
    confirmed, owner = state[2] == segment, state[4]
  end
  return segment
end

local function began_ms(began) -- epoch s with a fraction to ms
  return math.floor(began * 1000 + 0.5)
end

-- Whether a run of Redis began, or another warehouse adopted the ledger, between two times (epoch ms):
-- earlier data may be lost.
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

-- Whether the drain has restored budgets in this segment, to include all spend known to the warehouse.
local function has_confirmed_budgets()
  current_segment()
  return confirmed
end

-- Returns the key of a day's counters, and the prefix of their names in the set of changed counters.
local function counters_of(day)
  local name = current_segment()
  return base .. 'c:' .. name .. ':' .. day, name .. ' ' .. day .. ' '
end
