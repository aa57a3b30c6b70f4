-- inspect: finds the keys and fields of a queue that scripts cannot read. It writes nothing.
--
-- KEYS  the keys of the queue (keys.go)
-- Returns  a text for each such key and field, which describes its fault

local TYPES = KEYTYPES

local found = {}
for i = 1, BLOCK do
  local is = call('TYPE', KEYS[i]).ok
  if is ~= 'none' and is ~= TYPES[i] then
    found[#found + 1] = KEYS[i] .. ' is a ' .. is .. ', want a ' .. TYPES[i]
  elseif i == META then
    local v = call('HMGET', KEYS[i], unpack(FIELDS))
    for j = 1, #FIELDS do
      if v[j] and not sane(v[j]) then found[#found + 1] = 'field ' .. FIELDS[j] .. ' of ' .. KEYS[i] .. ' is no number' end
    end
  end
end
return found
