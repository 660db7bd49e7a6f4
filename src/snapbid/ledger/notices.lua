-- How a notice counts for a record: once, on the day of the bid while that is open, and never on one
-- that has closed.

-- Counts a rejection no longer: the bid was won or billed after all, or is taken back.
local function take_back_rejection(record) -- rare
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

-- Counts a notice that came at a time (epoch ms) for a record that is known then; gives the letter.
-- Where the bid's day is closed by when it is settled (epoch s), it counts on the day of that: they
-- are a moment apart, or a spool lies between them.
local function settle_record(digest, record, kind, reason, came_ms, settled)
  if bit.band(record.kinds, kind) ~= 0 then
    return 'd'
  end
  if record.user then
    settle_cap(digest, record, kind, came_ms)
  end
  if record.kinds >= REJECTED then
    take_back_rejection(record)
  end
  if kind == WIN then
    spend(record)
  elseif kind == LOSS then
    release(record)
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
