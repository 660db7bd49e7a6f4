-- SSPs and their variants, as ARGV[7] of remember.lua names them: they are one SSP.
local families
local function family_of(ssp)
  if not families then
    families = {}
    for variant, family in ARGV[7]:gmatch('(%d+)=(%d+)') do
      families[tonumber(variant)] = tonumber(family)
    end
  end
  return families[ssp] or ssp
end

local function ids_of_family(ssp) -- the family's own first
  local ids = {family_of(ssp)}
  for variant, family in pairs(families) do
    if family == ids[1] then
      ids[#ids + 1] = variant
    end
  end
  return ids
end
