-- ring: the partitions of a queue. The waiting tasks of a partition stand in a line by name (byname.lua),
-- whose name is p and the key. The tasks that are claimed only to start at once come first there, then the
-- suspects, then all others: to the bytes of these PLAIN is added. A task at the tail has the place SPREAD /
-- 2 and a number that grows, and its member has the moment when it joined. A task at the head has a number
-- that falls, and the moment 0.
--
-- The set ring has the name of the line of each partition with waiting tasks or a pause. The score of a ready
-- one is its turn less NEVER, which is negative. That of a paused one is the moment at which its pause ends,
-- NEVER for one without an end. A paused one has a second member, q and the key, with the score LISTED, so
-- that paused partitions are listed by key. The tasks without a partition have the turn that the meta hash
-- has under own. While the ring has members, the field lines of the meta hash is negative, as it is for a
-- limit (limit.lua).

-- is reports whether a line by name is that of a partition.
function ring.is(line) return byte(line, 1) == 112 end

-- valid reports whether a line by name is that of a partition with a key that a step can have written.
function ring.valid(line)
  return ring.is(line) and #line > 1 and #line <= MAXPARTITION + 1 and not find(line, '[%z\1-\31\127]')
end

-- class returns the number that is added to the byte of a task in the line of its partition.
function ring.class(h) return waits(h) == 'z' and DOUBTFUL or h.noahead and 0 or PLAIN end

-- lead returns the beginning of the members of a line with a priority and a class.
function ring.lead(line, priority, class) return line .. '\0' .. char(MAXPRIORITY - priority + class) end

-- whole returns the bounds, for ZRANGEBYLEX, of all members of a line.
function ring.whole(line) return '[' .. line .. '\0', '(' .. line .. '\1' end

-- span returns the bounds of the members of a line with a class.
function ring.span(line, class)
  return '[' .. line .. '\0' .. char(class), '(' .. line .. '\0' .. char(class + DOUBTFUL)
end

-- waiting returns the name of the line in which the task of a record stood when it was written, nil if it stood in no
-- line of a partition.
function ring.waiting(h)
  local at = h.place and h.partition ~= '' and number(h.place, 1, PLACE) or 0
  return at > SPREAD / 4 and at < SPREAD and 'p' .. h.partition or nil
end

-- before reports whether a text comes before another by its bytes, as Redis sorts them. Lua goes by the locale of the
-- server.
function ring.before(a, b)
  for i = 1, min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- count returns how many tasks stand in the lines of all partitions of a queue whose set of lines has a key.
function ring.count(lines) return call('ZLEXCOUNT', lines, '[p', '(q') end

-- add adds the partition of a line, and returns it as this call sees it: how many tasks it has, or with least at
-- least has, and its score in the ring, nil for none. A claim adds its first tasks (take.lua). All fields stand here
-- so that Lua makes room for them at once.
function ring.add(q, line, score, least)
  local p = {line = line, size = 1, least = least, net = 0, score = score, was = score, upto = nil, [PLAIN] = nil}
  q.parts[line] = p
  return p
end

-- of returns the partition of a line.
function ring.of(q, line)
  q.parts = q.parts or {}
  local p = q.parts[line]
  if not p then
    local score = tonumber(call('ZSCORE', q[RING], line) or nil)
    p = ring.add(q, line, score, score and score < 0)
    if not p.least then p.size = call('ZLEXCOUNT', q[LINES], ring.whole(line)) end
  end
  return p
end

-- inturn returns the partition of a line that the ring has among the ready ones. -NEVER stands for its score.
function ring.inturn(q, line)
  q.parts = q.parts or {}
  return q.parts[line] or ring.add(q, line, -NEVER, true)
end

-- paused reports whether a claim takes no task of a partition.
function ring.paused(q, line)
  local score = ring.of(q, line).score
  return score and score >= 0
end

-- ready puts a partition at the end of the ring. It removes a partition without tasks.
function ring.ready(q, p)
  p.score = nil
  if p.size <= 0 then return end
  bump(q, 'turn', 1)
  p.score = q.m.turn - NEVER
end

-- pause pauses a partition until a moment.
function ring.pause(q, line, till)
  ring.of(q, line).score = till
end

-- join notes that a task joined a line.
function ring.join(q, line, class)
  local p = ring.of(q, line)
  p.size, p.net = p.size + 1, p.net + 1
  if not p.score then ring.ready(q, p) end
  if p.score >= 0 then return end -- no claim could take it
  if class == PLAIN then q.work = true else q.news = true end
end

-- leave notes that a task left the line of a partition.
function ring.leave(q, p)
  p.size, p.net = p.size - 1, p.net - 1
  if p.size <= 0 and p.least then p.size, p.least = call('ZLEXCOUNT', q[LINES], ring.whole(p.line)) + p.net, nil end
  if p.size <= 0 and p.score and p.score < 0 then p.score = nil end
end

-- moved notes that a task moved from a member of the set of lines to another; either may be nil or false.
function ring.moved(q, from, to)
  local line = from and byname.line(from)
  if line and ring.is(line) then ring.leave(q, ring.of(q, line)) end
  line = to and byname.line(to)
  if line and ring.is(line) then ring.join(q, line, floor((byte(to, #line + 2) or 0) / DOUBTFUL) * DOUBTFUL) end
end

-- place gives the header of a task that joins its partition its place, and returns its member.
function ring.place(q, h, id, head)
  local line, at, moment = 'p' .. h.partition, nil, now
  if head then
    bump(q, 'head', -1)
    at, moment = q.m.head, 0
  else
    bump(q, 'turn', 1)
    at = q.m.turn
  end
  h.place = pack7(SPREAD / 2 + at)
  return ring.lead(line, h.priority, ring.class(h)) .. h.place .. pack7(moment) .. id
end

-- rests returns the moment at which the first pause of a partition ends, nil if none ends; from is where the search
-- begins, as ZRANGEBYSCORE has it.
function ring.rests(key, from)
  local v = call('ZRANGEBYSCORE', key, from, '(' .. text(NEVER), 'WITHSCORES', 'LIMIT', 0, 1)
  return v[1] and tonumber(v[2])
end
