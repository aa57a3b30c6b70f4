-- pack: functions that the short ways and the general ways of scripts share.

-- sane returns the number in a text that a step has written: a whole number, at least least (0 if that is nil) and
-- below NEVER. It returns nil for any other text, and for none, because Lua takes "nan", "inf" and "0x1" for numbers
-- too. Scripts read each number in a field of a hash by it.
local function sane(v, least)
  local n = tonumber(v)
  return n and n >= (least or 0) and n < NEVER and n % 1 == 0 and n or nil
end

-- pack7 writes a number as 7 bytes, the highest first.
local function pack7(v)
  local g = v % 256; v = (v - g) / 256
  local f = v % 256; v = (v - f) / 256
  local e = v % 256; v = (v - e) / 256
  local d = v % 256; v = (v - d) / 256
  local c = v % 256; v = (v - c) / 256
  local b = v % 256
  return string.char((v - b) / 256, b, c, d, e, f, g)
end
