-- Removes users from the records of a bucket, whose notices no longer count towards caps.
--
-- KEYS[1]  {sbN}:r:TIME_BUCKET:BUCKET
-- ARGV     1: 1 to remove, 0 to only count; 2...: users, 16 bytes each
-- Returns  the number of records with any of the users (layout: records.lua)
local CAPPED, KINDS_AT, USER_SIZE = 16, 19, 20
local users, found = {}, 0
for i = 2, #ARGV do
  users[ARGV[i]] = true
end
local records = redis.call('HGETALL', KEYS[1])
for i = 1, #records, 2 do
  local value = records[i + 1]
  local kinds = value:byte(KINDS_AT)
  if bit.band(kinds, CAPPED) ~= 0 and users[value:sub(-USER_SIZE, -5)] then
    found = found + 1
    if ARGV[1] == '1' then
      redis.call('HSET', KEYS[1], records[i], value:sub(1, KINDS_AT - 1)
        .. string.char(kinds - CAPPED) .. value:sub(KINDS_AT + 1, -USER_SIZE - 1))
    end
  end
end
return found
