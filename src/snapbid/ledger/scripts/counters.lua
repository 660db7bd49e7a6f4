-- include base
-- include now
-- include segment
-- Counters of a day, and the set of those that the drain has to read.

local DAY_S, DAY_OPEN_S = 86400, 7200 -- a day stays open until 02:00 of the next

local dates = {}
local function date(day) -- days since 1970-01-01 to YYYY-MM-DD (proleptic Gregorian)
  local text = dates[day]
  if not text then
    local z = day + 719468
    local era = math.floor(z / 146097)
    local doe = z - era * 146097
    local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524)
      - math.floor(doe / 146096)) / 365)
    local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
    local mp = math.floor((5 * doy + 2) / 153)
    local d = doy - math.floor((153 * mp + 2) / 5) + 1
    local m = mp < 10 and mp + 3 or mp - 9
    text = string.format('%04d-%02d-%02d', yoe + era * 400 + (m <= 2 and 1 or 0), m, d)
    dates[day] = text
  end
  return text
end

-- Lua adds exactly up to this many digits; Redis adds larger sums, which stay below 2^63.
local EXACT_DIGITS, LARGEST_EXACT, MOST_ARGUMENTS = 15, 1e15, 2000

-- Raises `many` counters of a day, and marks them as changed, for the drain. `list` has their names from
-- index `from` on, then the increments. `fewer`: amounts to subtract from the increments, by name.
local function raise_counters(day, list, from, many, fewer)
  local key, prefix = counters_of(day)
  for first = from, from + many - 1, MOST_ARGUMENTS do
    local last = math.min(first + MOST_ARGUMENTS, from + many) - 1
    local before = redis.call('HMGET', key, unpack(list, first, last))
    local sums, summed, changed, changes = {}, 0, {}, 0
    for i = first, last do
      local field, sum, by = list[i], before[i - first + 1] or '0', list[i + many]
      if fewer then
        by = by - (fewer[field] or 0)
      end
      if by ~= 0 then
        if #sum <= EXACT_DIGITS then
          summed = summed + 2
          sums[summed - 1], sums[summed] = field, string.format('%d', sum + by)
        else
          redis.pcall('HINCRBY', key, field, by)
        end
        changes = changes + 1
        changed[changes] = prefix .. field
      end
    end
    if summed > 0 then
      redis.call('HSET', key, unpack(sums))
    end
    if changes > 0 then
      redis.call('SADD', base .. 'd', unpack(changed))
    end
  end
end

-- Adds up increments by day and name; each counter is written once, at the end of a script.
local counted = {}
local function count(day, field, by) -- day: YYYY-MM-DD; by: digits
  local sums = counted[day]
  if not sums then
    sums = {}
    counted[day] = sums
  end
  local sum = (sums[field] or 0) + by
  if math.abs(sum) >= LARGEST_EXACT then
    local key, prefix = counters_of(day)
    redis.pcall('HINCRBY', key, field, by)
    redis.call('SADD', base .. 'd', prefix .. field)
  else
    sums[field] = sum
  end
end

local function write_counts()
  for day, sums in pairs(counted) do
    local list, many = {}, 0
    for field in pairs(sums) do
      many = many + 1
      list[many] = field
    end
    for i = 1, many do
      list[many + i] = sums[list[i]]
    end
    raise_counters(day, list, 1, many)
  end
end

local function count_anomaly(name, by) -- in an SSP's notices or bids, today (drain/names.py)
  count(date(math.floor(now / DAY_S)), 'n:' .. name, by)
end
