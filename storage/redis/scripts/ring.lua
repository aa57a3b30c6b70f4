-- ring: the partitions of a queue. The waiting tasks of a partition stand in a line by name (byname.lua),
-- whose name is p and the key. The tasks that are claimed only to start at once come first there, then the
-- suspects, then all others: to the bytes of these PLAIN is added. A task at the tail has the place SPREAD /
-- 2 and a number that grows, and its member has the moment when it joined. A task at the head has a number
-- that falls, and the moment 0.
--
-- The set ring has the name of the line of each partition of which the queue has something. The score of a ready one
-- is its turn less NEVER, which is negative. That of any other is the moment from which it may be ready, NEVER for
-- none: see arrange. It has a second member too, q and the key, with the score LISTED, so that these partitions are
-- listed by key. The tasks without a partition have the turn that the meta hash has under own, and rest until the
-- moment that it has under rest. While the ring has members, the field lines of the meta hash is negative, as it is for
-- a limit (limit.lua).
--
-- A partition may have more than tasks: a pause, a rest that a throttled task began, tasks that run and count for its
-- Concurrency, a limit of its own, and starts that count for its rate. The side hash then has under k: and the key, as
-- Line.Pack in package engine writes them, when the pause ends (NEVER for one without an end) and when the rest ends, 0
-- for none, how many tasks run, how many tasks are left of a turn that goes on, the text of the limit, and the packed
-- starts.

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
  local from = 1
  while from <= #a and sub(a, from, from + 7) == sub(b, from, from + 7) do from = from + 8 end -- most ids begin alike
  for i = from, min(#a, #b) do
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
  local p = {line = line, size = 1, least = least, net = 0, score = score, was = score, upto = nil, changed = nil, [PLAIN] = nil}
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

-- ready puts a partition at the end of the ring, if nothing is left of its turn. It removes a partition without tasks.
function ring.ready(q, p)
  p.score, p.left = nil, p.left and 0
  if p.size <= 0 then return end
  bump(q, 'turn', 1)
  p.score = q.m.turn - NEVER
end

-- join notes that a task joined a line.
function ring.join(q, line, class)
  local p = ring.of(q, line)
  p.size, p.net = p.size + 1, p.net + 1
  if not p.score then ring.ready(q, p.was and ring.kept(q, p) or p)
  elseif p.score >= 0 and p.size == 1 then ring.arrange(q, p) end
  if p.score >= 0 then return end -- no claim could take it
  if class == PLAIN then q.work = true else q.news = true end
end

-- leave notes that a task left the line of a partition. A ready one without tasks is arranged at the end of the call:
-- see settle in commit.lua.
function ring.leave(q, p)
  p.size, p.net = p.size - 1, p.net - 1
  if p.size <= 0 and p.least then p.size, p.least = call('ZLEXCOUNT', q[LINES], ring.whole(p.line)) + p.net, nil end
  if p.size > 0 or not p.score then return end
  if p.score < 0 then p.score = nil else ring.arrange(q, p) end
end

-- moved notes that a task moved from a member of the set of lines to another; either may be nil or false.
function ring.moved(q, from, to)
  local line = from and byname.line(from)
  if line and ring.is(line) then ring.leave(q, ring.of(q, line)) end
  line = to and byname.line(to)
  if line and ring.is(line) then ring.join(q, line, floor((byte(to, #line + 2) or 0) / DOUBTFUL) * DOUBTFUL) end
end

-- place writes its place into the header of a task that joins its partition, and returns its member.
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

-- rests returns the first moment from which a partition may be ready, nil for none; from is the beginning of the
-- search, as ZRANGEBYSCORE has it.
function ring.rests(key, from)
  local v = call('ZRANGEBYSCORE', key, from, '(' .. text(NEVER), 'WITHSCORES', 'LIMIT', 0, 1)
  return v[1] and tonumber(v[2])
end

-- resting reports whether the tasks without a partition rest. Their rest does not end while timed work waits (jump.lua).
function ring.resting(q) return q.m.rest > (q.m.jumped > 0 and 0 or now) end

do
local KEPT = 32 -- the bytes before the length of the text of its own limit

-- eight reads a big-endian number of 8 bytes at i.
local function eight(v, i)
  local a, b, c, d, e, f, g, h = byte(v, i, i + 7)
  return ((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g) * 256 + h
end

-- field returns the field of the side hash for a partition.
function ring.field(line) return 'k:' .. sub(line, 2) end

-- unpacked returns the values of a partition that a text has, zeros for a text that no step has written.
function ring.unpacked(v)
  if v and #v > KEPT then
    local paused, rest, running, left = eight(v, 1), eight(v, 9), eight(v, 17), eight(v, 25)
    local from = KEPT + 1 + byte(v, KEPT + 1)
    local own = sub(v, KEPT + 2, from)
    local sound = #v >= from and (own == '' or rate.own(own))
    if sound and paused <= NEVER and rest < NEVER and running < NEVER and left < NEVER then
      return paused, rest, running, sub(v, from + 1), own, left
    end
  end
  return 0, 0, 0, '', '', 0
end

-- packed returns the text for the values of a partition, false for none.
function ring.packed(p)
  local starts = p.counts and rate.pack(p.list) or p.starts
  if p.paused + p.rest + p.running + p.left == 0 and starts == '' and p.text == '' then return false end
  local zero = char(0)
  return zero .. pack7(p.paused) .. zero .. pack7(p.rest) .. zero .. pack7(p.running) .. zero .. pack7(p.left)
    .. char(#p.text) .. p.text .. starts
end

-- prefetch reads the side hash for several partitions.
function ring.prefetch(q, lines)
  local fields = {}
  for i = 1, #lines do fields[i] = ring.field(lines[i]) end
  local v = lookup(q[SIDE], fields)
  for i = 1, #fields do
    if q.side[fields[i]] == nil then q.side[fields[i]] = v[i] end
  end
end

-- kept reads the values of a partition besides its tasks, and returns the partition. Its field changed is set if the
-- side hash has to be written.
function ring.kept(q, p)
  if p.paused then return p end
  local v = aside(q, ring.field(p.line))
  p.paused, p.rest, p.running, p.starts, p.text, p.left = ring.unpacked(v)
  p.stored = p.left
  p.own = p.text ~= '' and rate.own(p.text)
  p.changed = v and not ring.packed(p) -- it is damaged
  return p
end

-- each returns the limit of a partition: its own, or that of all partitions of the queue, false for none.
function ring.each(q, p)
  return rate.owned(q) and ring.kept(q, p).own or rate.each(q)
end

-- starts returns the starts of a partition that count for its rate, and the other results of rate.unpacked.
function ring.starts(q, p)
  local each = p.starts ~= '' and ring.each(q, p)
  if not p.list and each and each.n > 0 then
    p.list, p.sum, p.ahead = rate.unpacked(p.starts, each.per, rate.last(each.per), q.m.jumped > 0)
  elseif not p.list then p.list, p.sum, p.ahead = {}, 0, false end
  return p.list, p.sum, p.ahead
end

-- recount notes that the starts of a partition are those that ring.starts returns, from now on.
function ring.recount(q, p)
  ring.starts(q, p)
  p.counts, p.changed = true, true
end

-- arrange puts a partition where it belongs in the ring, by the rules of arrange in package engine.
function ring.arrange(q, p)
  ring.kept(q, p)
  local list, _, ahead = ring.starts(q, p)
  if p.starts ~= '' and #list == 0 then ring.recount(q, p) end -- none of them counts any more
  local at = max(p.paused, p.rest)
  if at == 0 and p.size <= 0 then
    if p.running > 0 then at = NEVER
    elseif #list > 0 then at = min((not p.counts and ahead or list[#list - 1]) + ring.each(q, p).per, NEVER - 1)
    elseif p.own then at = NEVER end
  end
  if at > 0 then p.score, p.left = at, 0 else ring.ready(q, p) end
end

-- pause pauses the partition of a line until a moment, and resumes it if that is 0.
function ring.pause(q, line, till)
  local p = ring.kept(q, ring.of(q, line))
  if till == 0 and p.paused == 0 then return end
  p.paused, p.changed = till, true
  ring.arrange(q, p)
end

-- bound sets the limit of one partition to a text, '' to clear it.
function ring.bound(q, line, v)
  local p = ring.kept(q, ring.of(q, line))
  if v == '' and p.text == '' then return end
  if v ~= '' then
    put(q, rate.OWNED, '1')
    q.alone = true
  end
  p.text, p.own, p.changed = v, v ~= '' and rate.own(v), true
  local each = ring.each(q, p)
  if not (each and each.n > 0) then p.starts = '' end
  if not p.score or p.score >= 0 or p.size <= 0 then ring.arrange(q, p) end
end

-- throttle lets the partition of a key rest until a moment, or the tasks without a partition if the key is ''.
function ring.throttle(q, key, till)
  if key == '' then
    set(q, 'rest', max(q.m.rest, till))
    if q.m.lines >= 0 then set(q, 'lines', -1) end
    return
  end
  local p = ring.kept(q, ring.of(q, 'p' .. key))
  p.rest, p.changed = max(p.rest, till), true
  ring.arrange(q, p)
end

-- awake ends the pause and the rest of a partition if they are over, and arranges it.
function ring.awake(q, p)
  ring.kept(q, p)
  if p.paused > 0 and p.paused <= now then p.paused, p.changed = 0, true end
  if p.rest > 0 and p.rest <= now then p.rest, p.changed = 0, true end
  if p.starts ~= '' then ring.recount(q, p) end
  ring.arrange(q, p)
end

-- overlong returns the first partitions that rest because of their rate for longer than a start now would let them, as
-- they do after the clock was set back.
function ring.overlong(q)
  local list = {}
  if q.m.lines >= 0 or q.m.mark - now <= JUMPBACK or not rate.each(q) and not rate.owned(q) then return list end
  local function last(each)
    local per = max(each and each.per or 0, 1)
    return rate.last(per) + per
  end
  local from = text(last(rate.each(q)) + 1)
  local lines = call('ZRANGEBYSCORE', q[RING], from, text(NEVER - 1), 'LIMIT', 0, MAXREST)
  if rate.owned(q) then -- some may have a shorter Per of their own
    local own = call('ZRANGEBYSCORE', q[RING], text(last() + 1), '(' .. from, 'LIMIT', 0, MAXREST)
    for i = 1, #own do lines[#lines + 1] = own[i] end
  end
  ring.prefetch(q, lines)
  for i = 1, #lines do
    local p = ring.kept(q, ring.of(q, lines[i]))
    if p.paused == 0 and p.rest == 0 and p.score > last(ring.each(q, p)) then list[#list + 1] = p end
  end
  return list
end

-- counted returns the key behind the runner of a lease whose task counts for the Concurrency of its partition, and how
-- many bytes it takes there with its length.
function ring.counted(lease)
  local n = byte(lease, #lease) or 0
  return sub(lease, -1 - n, -2), n + 1
end

-- free notes that the task of such a lease runs no more.
function ring.free(q, lease)
  local line = 'p' .. ring.counted(lease)
  if not ring.valid(line) then return end
  local p = ring.kept(q, ring.of(q, line))
  if p.running > 0 then p.running, p.changed = p.running - 1, true end
  if p.size <= 0 and p.running == 0 then ring.arrange(q, p) end
end

-- loosen arranges the first partitions that rest because of their rate, after a change of the limit of all of them.
function ring.loosen(q)
  local lines = call('ZRANGEBYSCORE', q[RING], '0', text(NEVER), 'LIMIT', 0, MAXTURNS)
  ring.prefetch(q, lines)
  for i = 1, #lines do
    local p = ring.kept(q, ring.of(q, lines[i]))
    if p.paused == 0 and p.rest == 0 and not p.own then ring.arrange(q, p) end
  end
end
end
