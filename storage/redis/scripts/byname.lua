-- byname: the lines of a queue that have names, which are the kinds of declined tasks. They are one sorted set.
-- All scores are 0, so that Redis sorts the members by their bytes: the name of the kind, NUL, a byte for the
-- priority (lower for a higher priority), the place, the moment of the decline and the id. Suspects stand behind
-- the other tasks of their kind: DOUBTFUL is added to their byte.
--
-- The side hash has a field for each line: when a claim last named the kind, and how many tasks the line has.

local byname = {}

-- of returns the kind of a task.
function byname.of(h) return sub(h.rec, h.kindat, h.kindat + h.kind - 1) end

-- prefix returns the prefix of the members of a kind and priority.
function byname.prefix(kind, priority, suspect)
  return kind .. '\0' .. char(MAXPRIORITY - priority + (suspect and DOUBTFUL or 0))
end

-- span returns the bounds, for ZRANGEBYLEX, of the suspects of a kind or of its other tasks.
function byname.span(kind, suspect)
  local middle = kind .. '\0' .. char(DOUBTFUL)
  if suspect then return '[' .. middle, '(' .. kind .. '\1' end
  return '[' .. kind .. '\0', '(' .. middle
end

-- kind returns the kind in a member.
function byname.kind(member) return string.match(member, '^[^%z]*') end

-- suspect reports whether a member stands for a suspect.
function byname.suspect(member) return (byte(member, #byname.kind(member) + 2) or 0) >= DOUBTFUL end

-- kinds returns the first most kinds, sorted by name, that have a line in a set and come after the kind behind
-- (nil for none).
function byname.kinds(key, behind, most)
  local kinds, from = {}, behind and '[' .. behind .. '\1' or '-'
  while #kinds < most do
    local v = call('ZRANGEBYLEX', key, from, '+', 'LIMIT', 0, 1)
    if not v[1] then break end
    kinds[#kinds + 1] = byname.kind(v[1])
    from = '[' .. kinds[#kinds] .. '\1'
  end
  return kinds
end

-- find returns the member of a task, nil where it is in no line.
function byname.find(q, id, rec)
  local h = has(byte(rec, 3) or 0, HASPLACE) and head(rec)
  if not h then return nil end
  local lead = byname.prefix(byname.of(h), h.priority, waits(h) == 'z') .. h.place
  local v = call('ZRANGEBYLEX', q[DECLINED], '[' .. lead, '[' .. lead .. '\255', 'LIMIT', 0, 1)
  return v[1] and sub(v[1], #lead + PLACE + 1) == id and v[1] or nil
end

-- count notes that by tasks joined the line of a kind, or left it where by is negative.
function byname.count(q, kind, suspect, by)
  local counts = q.kinds[kind] or {[true] = 0, [false] = 0}
  q.kinds[kind], counts[suspect] = counts, counts[suspect] + by
end

-- tally returns how many tasks are in the line of a kind, suspects excluded, and how many suspects. v is
-- the field of the kind in the side hash. It returns nil and 0 where the field does not tell.
function byname.tally(v)
  v = v and sub(v, PLACE + 1) or ''
  local n = tonumber(v)
  if n then return n, 0 end -- most lines have no suspects
  local others, suspects = string.match(v, '^(%d+)%+(%d+)$')
  return tonumber(others or ''), tonumber(suspects or '') or 0
end

-- tallied returns the field of a kind in the side hash; named is when a claim last named it, in 7 bytes.
function byname.tallied(named, n, suspects) return named .. n .. (suspects > 0 and '+' .. suspects or '') end

