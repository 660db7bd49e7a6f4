-- All keys of a script share the hash tag of KEYS[1], {sbN}:epoch.
local base = KEYS[1]:sub(1, -6)
