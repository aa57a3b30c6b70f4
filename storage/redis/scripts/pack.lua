-- pack: the function that the short ways and the general ways of scripts share.

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
