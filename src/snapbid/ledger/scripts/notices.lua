-- include base
-- include counters
-- include records
-- include clock
-- include money
-- include impressions
-- Counts a notice for a record once: on the day of the bid while that is open, else on the day of
-- settlement.

-- Uncounts a rejection of a bid that was won or billed after all, or is rolled back.
local function roll_back_rejection(record)
  record.kinds = record.kinds - REJECTED
  count_rejection(record, '-1')
end

local function count_notice(day, record, kind, sign) -- `sign`: '-' or nothing
  local ssp, campaign, by = tostring(record.ssp), tostring(record.campaign), sign .. '1'
  if kind == WIN then
    count(day, 'w:' .. ssp, by)
    count(day, 'p:' .. ssp, sign .. record.price)
    count(day, 'W:' .. campaign, by)
    count(day, 'P:' .. campaign, sign .. record.price)
  elseif kind == BILLING then
    count(day, 'i:' .. ssp, by)
    count(day, 'I:' .. campaign, by)
  else
    count(day, 'l:' .. ssp .. ':' .. record.reason, by)
  end
end

local function is_open(day, seconds) -- at that time
  return seconds < (day + 1) * DAY_S + DAY_OPEN_S
end

-- A loss ends a hold and frees the money, unless the SSP often contradicts its losses: if wins follow at
-- least three losses, and more than one in a hundred, its holds end only by time, until an hour after the
-- last such win in this shard.
--   {sbN}:contradicted      SSP -> losses of held bids since the first such win, the number of such wins,
--                           and until when they count (hold clock, s)
local CONTRADICTED_FOR_S, LEAST_CONTRADICTED, MOST_SHARE = 3600, 3, 0.01
local function contradictions(ssp)
  local kept = redis.call('HGET', base .. 'contradicted', ssp) or ''
  local losses, wins, ends = kept:match('^(%d+) (%d+) (%d+)$')
  if not ends or tonumber(ends) * 1000 < hold_clock() then
    return 0, 0
  end
  return tonumber(losses), tonumber(wins), ends
end

local function note_contradiction(record) -- which is won after it was lost
  local losses, wins = contradictions(record.ssp)
  local ends = math.floor(hold_clock() / 1000) + CONTRADICTED_FOR_S
  redis.call('HSET', base .. 'contradicted', record.ssp,
    string.format('%d %d %d', losses, wins + 1, ends))
  redis.call('EXPIRE', base .. 'contradicted', string.format('%d', CONTRADICTED_FOR_S))
end

local function is_contradicted(ssp)
  local losses, wins, ends = contradictions(ssp)
  if wins > 0 then
    losses = losses + 1
    redis.call('HSET', base .. 'contradicted', ssp, losses .. ' ' .. wins .. ' ' .. ends)
  end
  return wins >= LEAST_CONTRADICTED and wins > MOST_SHARE * (losses + wins)
end

local is_any_contradicted
local function lose(record)
  if bit.band(record.kinds, HELD) == 0 then
    return
  end
  if is_any_contradicted == nil then
    is_any_contradicted = redis.call('EXISTS', base .. 'contradicted') == 1
  end
  if not is_any_contradicted or not is_contradicted(record.ssp) then
    cancel_hold(record)
  end
end

-- Counts a notice for a record; returns the letter. It arrived at `came_ms` (epoch ms); `settled` is now
-- (epoch s): a moment later, or much later if the notice was spooled. If the bid's day is closed by now,
-- the notice counts on the day of settlement.
local function settle_record(digest, record, kind, reason, came_ms, settled)
  if bit.band(record.kinds, kind) ~= 0 then
    return 'd'
  end
  if record.user then
    settle_cap(digest, record, kind, as_server_time(came_ms))
  end
  if record.kinds >= REJECTED then
    roll_back_rejection(record)
  end
  if kind == WIN then
    spend(record)
    if bit.band(record.kinds, LOSS) ~= 0 then
      note_contradiction(record)
    end
  elseif kind == LOSS then
    lose(record)
    record.reason = reason
  end
  record.kinds = record.kinds + kind
  redis.call('HSET', record.key, record.field, pack_record(record))
  local day = math.floor(record.time / DAY_S)
  if is_open(day, settled) then
    count_notice(date(day), record, kind, '')
    return 'c'
  end
  count_notice(date(math.floor(settled / DAY_S)), record, kind, '')
  return 'l'
end
