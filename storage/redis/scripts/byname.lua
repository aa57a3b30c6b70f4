-- byname: the lines of a queue that have names. They are one sorted set. All scores are 0, so that Redis sorts the
-- members by their bytes: the name of the line, NUL, a byte for the priority (lower for a higher priority), the
-- place, the moment of the decline and the id. Suspects stand behind the other tasks of their line: DOUBTFUL is
-- added to their byte. The line of the declined tasks of a kind has the name k and the kind. The lines whose names
-- begin with p are the lines of partitions: see ring.lua. The other rules of this file hold for the lines of
-- kinds.
--
-- The side hash has under l: and the name of each line when a claim last named the kind, and how many tasks the
-- line has.

local byname, ring = {}, {}

-- of returns the line of a task that is declined.
function byname.of(h) return 'k' .. sub(h.rec, h.kindat, h.kindat + h.kind - 1) end

-- prefix returns the prefix of the members of a line and priority.
function byname.prefix(line, priority, suspect)
  return line .. '\0' .. char(MAXPRIORITY - priority + (suspect and DOUBTFUL or 0))
end

-- span returns the bounds, for ZRANGEBYLEX, of the suspects of a line or of its other tasks.
function byname.span(line, suspect)
  local middle = line .. '\0' .. char(DOUBTFUL)
  if suspect then return '[' .. middle, '(' .. line .. '\1' end
  return '[' .. line .. '\0', '(' .. middle
end

-- line returns the line of a member.
function byname.line(member) return string.match(member, '^[^%z]*') end

-- valid reports whether a line is that of a kind.
function byname.valid(line) return byte(line, 1) == 107 and valid(sub(line, 2)) end

-- suspect reports whether a member stands for a suspect.
function byname.suspect(member) return (byte(member, #byname.line(member) + 2) or 0) >= DOUBTFUL end

-- lines returns the first most lines, sorted by name, that have members in a set and come after the line behind
-- (nil for none). It leaves out the lines of partitions unless all is set.
function byname.lines(key, behind, most, all)
  local lines, from = {}, behind and '[' .. behind .. '\1' or '-'
  while #lines < most do
    local v = call('ZRANGEBYLEX', key, from, '+', 'LIMIT', 0, 1)
    if not v[1] then break end
    local line = byname.line(v[1])
    if all or byte(line, 1) ~= 112 then
      lines[#lines + 1] = line
      from = '[' .. line .. '\1'
    else
      from = '[q'
    end
  end
  return lines
end

-- find returns the member of a task, nil if it is in no line.
function byname.find(q, id, rec)
  local h = has(byte(rec, 3) or 0, HASPLACE) and head(rec)
  if not h then return nil end
  local line = ring.waiting(h)
  local lead = line and ring.lead(line, h.priority, ring.class(h)) or byname.prefix(byname.of(h), h.priority, waits(h) == 'z')
  lead = lead .. h.place
  local v = call('ZRANGEBYLEX', q[LINES], '[' .. lead, '[' .. lead .. '\255', 'LIMIT', 0, 1)
  return v[1] and sub(v[1], #lead + PLACE + 1) == id and v[1] or nil
end

-- count notes that by tasks joined the line of a kind, or left it if by is negative.
function byname.count(q, line, suspect, by)
  if byte(line, 1) == 112 then return end
  local counts = q.counts[line] or {[true] = 0, [false] = 0}
  q.counts[line], counts[suspect] = counts, counts[suspect] + by
end

-- tally returns how many tasks are in a line, suspects excluded, and how many suspects. v is the field of
-- the line in the side hash. It returns nil and 0 if the field does not hold them.
function byname.tally(v)
  v = v and sub(v, PLACE + 1) or ''
  local n = sane(v)
  if n then return n, 0 end -- most lines have no suspects
  local others, suspects = string.match(v, '^(%d+)%+(%d+)$')
  others, suspects = sane(others or ''), sane(suspects or '')
  return suspects and others, others and suspects or 0
end

-- sizes is tally for the line of such a field. It counts the tasks if the field does not hold the numbers.
function byname.sizes(q, line, v)
  local n, suspects = byname.tally(v)
  if n then return n, suspects end
  return call('ZLEXCOUNT', q[LINES], byname.span(line, false)), call('ZLEXCOUNT', q[LINES], byname.span(line, true))
end

-- tallied returns the field of a line in the side hash; named is when a claim last named it, in 7 bytes.
function byname.tallied(named, n, suspects) return named .. n .. (suspects > 0 and '+' .. suspects or '') end

