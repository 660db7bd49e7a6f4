-- Reads and numbers a batch of changed counters. Before the first batch the names of changed counters
-- are set aside, unless an earlier round has left some there.
--
-- KEYS     1 and 2 as in every script (`ShardKeys.script_keys`); 3 {sbN}:d; 4 {sbN}:d:taken;
--          5 {sbN}:segment; 6 {sbN}:g
-- ARGV     1 the batch's number; 2 the approximate number of counters; 3 the cursor where the
--          previous batch ended, 0 for the first; 4 the run of Redis in which it was read: cursors
--          hold for one run only
-- Returns  false if the data is not that of the previous batch, so that batch numbers stay unique.
--          Else: the epoch; the current segment; the time (epoch ms); the run; the cursor (0: this was
--          the last batch); whether names had been left; the number of names; the malformed ones; and
--          for each hash: segment and day, the generation, the fields, their values. A first batch
--          without names takes no number.
local SOME = 4000 -- arguments that `unpack` can pass

local run = redis.call('INFO', 'server'):match('run_id:(%x+)')
local epoch = redis.call('GET', KEYS[1])
local state = redis.call('HMGET', KEYS[5], 'segment', 'read')
local number = tonumber(ARGV[1])
local cursor, is_left = ARGV[3], 0
if not epoch or tonumber(state[2] or 0) ~= number - 1 or cursor ~= '0' and ARGV[4] ~= run then
  return false
end
if cursor == '0' then
  is_left = redis.call('EXISTS', KEYS[4])
  if is_left == 0 and redis.call('EXISTS', KEYS[3]) == 1 then
    redis.call('RENAME', KEYS[3], KEYS[4])
  end
end
local names
repeat
  cursor, names = unpack(redis.call('SSCAN', KEYS[4], cursor, 'COUNT', ARGV[2]))
until cursor == '0' or #names > 0

local malformed, fields_of, hashes = {}, {}, {}
for _, name in ipairs(names) do
  local head, field = name:match('^(.*) (.*)$')
  local fields = fields_of[head]
  if not fields then
    local segment, day = (head or ''):match('^(%x+) ([%d-]+)$')
    if day then
      fields = {}
      fields_of[head] = fields
      local key = KEYS[1]:sub(1, -6) .. 'c:' .. segment .. ':' .. day
      table.insert(hashes, {head, key, fields})
    else
      fields, field = malformed, name
    end
  end
  fields[#fields + 1] = field
end
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {epoch, state[1], ms, run, cursor, is_left, #names, malformed}
for _, hash in ipairs(hashes) do
  local head, key, fields = unpack(hash)
  local values = {}
  for first = 1, #fields, SOME do
    local some = redis.call('HMGET', key, unpack(fields, first, math.min(first + SOME - 1, #fields)))
    for _, value in ipairs(some) do
      values[#values + 1] = value
    end
  end
  table.insert(reply, {head, redis.call('HGET', KEYS[6], head) or '0', fields, values})
end
if #names > 0 or ARGV[3] ~= '0' then
  redis.call('HSET', KEYS[5], 'read', number)
end
return reply
