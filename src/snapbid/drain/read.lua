-- Reads a batch of the changed counters, and numbers it. What has changed is moved aside before the
-- first batch, unless names are there still.
--
-- KEYS     1 and 2 those of each script (`ShardKeys.script_keys`); 3 {sbN}:d; 4 {sbN}:d:taken;
--          5 {sbN}:segment; 6 {sbN}:g
-- ARGV     1 the batch's number; 2 about how many counters; 3 the place where the batch before has
--          ended, 0 for the first one; 4 the run of Redis that it was read in: another one has
--          other places
-- Returns nothing where the data is another than that of the batch before: no two batches have the same
-- number. Else the epoch, the segment that is counted in, the run, where this batch has ended (0: it is
-- the last one), whether names were there still, how many names it has, those of no counter, and for
-- each hash what stands before the fields, its generation, the fields and their values. A first batch
-- without names has no number.
local SOME = 4000 -- what `unpack` takes

local run = redis.call('INFO', 'server'):match('run_id:(%x+)')
local epoch = redis.call('GET', KEYS[1])
local state = redis.call('HMGET', KEYS[5], 'segment', 'read')
local number = tonumber(ARGV[1])
local place, is_left = ARGV[3], 0
if not epoch or tonumber(state[2] or 0) ~= number - 1 or place ~= '0' and ARGV[4] ~= run then
  return false
end
if place == '0' then
  is_left = redis.call('EXISTS', KEYS[4])
  if is_left == 0 and redis.call('EXISTS', KEYS[3]) == 1 then
    redis.call('RENAME', KEYS[3], KEYS[4])
  end
end
local names
repeat
  place, names = unpack(redis.call('SSCAN', KEYS[4], place, 'COUNT', ARGV[2]))
until place == '0' or #names > 0

local strangers, fields_of, hashes = {}, {}, {}
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
      fields, field = strangers, name
    end
  end
  fields[#fields + 1] = field
end
local reply = {epoch, state[1], run, place, is_left, #names, strangers}
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
