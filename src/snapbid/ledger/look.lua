-- Looks whether bids would be within their limits; holds and counts nothing.
--
-- KEYS[1]  {sbN}:epoch, see limits.lua
-- ARGV     1 now (epoch ms); 2 how long money and caps are held (s); 3 the bids, each uint8 length,
--          price (digits), uint8 length, user (empty: not asked for), uint16 length, limits
-- Returns letters as remember.lua.
local now_ms, hold_s = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = math.floor(now_ms / 1000)
local bids, at, size, letters = ARGV[3], 1, #ARGV[3], {}
while at <= size do
  local price, user, packed
  price, user, packed, at = struct.unpack('<Bc0Bc0I2c0', bids, at)
  local letter = 'k'
  if packed ~= '' then
    local limits = parse(packed)
    if user ~= '' and not within_caps(limits, user, now_ms, hold_s) then
      letter = 'c'
    elseif limits.has_budget
      and not afford(open_purse(limits.campaign, now, hold_s), price, limits, false) then
      letter = 'b'
    end
  end
  letters[#letters + 1] = letter
end
return table.concat(letters)
