-- include base
-- Records figures of the ledger that contradict each other, for the self-audit (drain/audit.py).
--
--   {sbN}:discrepancies  what differs -> the two figures; expires an hour after the last one was recorded
local RECORDED_S = 3600

local function record_discrepancy(what, first, second) -- as digits
  local key = base .. 'discrepancies'
  redis.call('HSET', key, what, first .. ' ' .. second)
  redis.call('EXPIRE', key, RECORDED_S)
end
