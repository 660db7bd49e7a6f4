-- include base
-- include records
-- Looks up bids by auction and impression, for the self-audit.
--
-- ARGV     1 now (epoch ms); 2 the bids, each uint16 bucket, 14 bytes field
-- Returns  for each bid the kinds of notices counted for its records, summed; -1 if it has no record
local bids, at, kinds = ARGV[2], 1, {}
local is_open = redis.call('TYPE', base .. 'r').ok == 'hash' -- not closed, nor new
while at <= #bids do
  local bucket, field, found
  bucket, field, at = struct.unpack('<I2c14', bids, at)
  found = -1
  if is_open then
    each_record(bucket, field, function(record)
      found = bit.bor(math.max(found, 0), record.kinds % 8)
    end)
  end
  kinds[#kinds + 1] = found
end
return kinds
