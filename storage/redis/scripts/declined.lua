-- declined: how claim.lua reads the declined tasks of its kinds in a queue, as candidates for take.lua.
--
-- A claim passes over declined tasks whose partitions do not admit them. If no candidate is left, it reads on, once in
-- each line. So hundreds of held tasks hide no task behind them in their line, and no number of them hides a task that
-- was not declined.

do
local PASSED = 100 -- how many suspects a claim reads at first, if the first of them may be passed over
local MOSTDECLINED = 500 -- how many declined tasks of a queue a claim reads, and how many more if it reads on

-- window returns the lines of the claim's kinds that the claim reads. If there are too many it
-- returns some of them, different ones each time.
local function window(q, wanted)
  local list, all, most = {}, {}, max(floor(LOOKED / crowd), 4)
  for _, line in ipairs(q.own) do
    if line.n > 0 or wanted and line.suspects > 0 then all[#all + 1] = line end
  end
  if #all <= most then return all end
  q.cut = true
  for i = 1, most do list[i] = all[(now + i) % #all + 1] end
  return list
end

-- parse returns the candidate for a member of the set of lines by name. It sets a member apart that is
-- too short to stand for a task, and returns nil.
function byname.parse(q, member, line)
  local lead = #line + 2
  if #member <= lead + 2 * PLACE then return stray(q, member) end
  local p, a, b, c, d, e, f, g = byte(member, lead, lead + PLACE)
  local turn = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
  local class = p - p % DOUBTFUL
  return {st = 'k', id = sub(member, lead + 1 + 2 * PLACE), at = place(MAXPRIORITY - p % DOUBTFUL, turn - SPREAD / 2),
    member = member, line = line, class = class, doubtful = class == DOUBTFUL}
end

-- stream returns the suspects of a line, or its other tasks, before any of them is read. at is the place of the last
-- task that was read if more may follow, NEVER if not; left is how many of the tasks that were read the claim has not
-- met yet.
local function stream(line, suspects)
  local from, to = byname.span(line.name, suspects)
  return {line = line, from = from, to = to, at = NEVER, left = 0, again = false}
end

-- read appends up to count more tasks of a stream to a list.
local function read(q, s, count, list)
  local v, at = call('ZRANGEBYLEX', q[LINES], s.from, s.to, 'LIMIT', 0, count), -NEVER
  for i = 1, #v do
    local c = byname.parse(q, v[i], s.line.name)
    list[#list + 1] = c
    at = c and c.at or at
    s.left = s.left + (c and 1 or 0)
  end
  s.at = #v == count and at or NEVER
  if v[1] then s.from = '(' .. v[#v] end
end

-- readon reads on in one of so many streams, once in a claim, and returns the tasks that it has read.
function byname.readon(q, s, streams)
  local list = {}
  if s.at == NEVER or s.again then return list end
  s.again = true
  read(q, s, max(floor(MOSTDECLINED / streams), 4), list)
  return list
end

-- sort sorts candidates by their places.
function byname.sort(list) table.sort(list, function(x, y) return x.at < y.at end) end

-- merge puts sorted candidates into a list behind its first n, where they belong by their places.
function byname.merge(list, n, others)
  if #others == 0 then return end
  local tail = {}
  for i = n + 1, #list do tail[i - n] = list[i] end
  for i = #list, n + 1, -1 do list[i] = nil end
  local i = 1
  for _, c in ipairs(others) do
    while tail[i] and tail[i].at < c.at do list[#list + 1], i = tail[i], i + 1 end
    list[#list + 1] = c
  end
  for j = i, #tail do list[#list + 1] = tail[j] end
end

-- first returns the first tasks in the lines of the claim's kinds, in their order, and the horizon: a
-- score up to which the list is complete. It first reads the same number of tasks from each line. Then it
-- reads on, up to ten times, in the line whose last known task comes first, because the next task of that
-- line may come before tasks of the others. It also returns the streams, those of suspects only by the names
-- of their lines.
function byname.first(q, n, wanted)
  n = min(n, MOSTDECLINED)
  local list, streams, doubts, horizon = {}, {}, {}, NEVER
  local lines = window(q, wanted)
  local few = q.m.lines < 0 and max(floor(PASSED / #lines), 4) or 1 -- the partition of the first may not admit it
  for i, line in ipairs(lines) do
    if wanted and line.suspects > 0 then
      doubts[line.name] = stream(line, true)
      read(q, doubts[line.name], few, list)
    end
    streams[i] = stream(line, false)
    streams[line.name] = streams[i]
    if line.n > 0 then read(q, streams[i], max(floor(n / #lines), 1), list) end
  end
  for _ = 1, 10 do
    local next, before = streams[1], 0
    for i = 2, #streams do
      if streams[i].at < next.at then next = streams[i] end
    end
    horizon = next and next.at or NEVER
    for i = 1, #list do
      if list[i].at <= horizon then before = before + 1 end
    end
    if horizon == NEVER or before >= n then break end
    read(q, next, 100, list)
    horizon = 0
  end
  for i = 1, horizon == 0 and #streams or 0 do
    horizon = i == 1 and streams[1].at or min(horizon, streams[i].at)
  end
  if #streams > 1 or wanted then byname.sort(list) end
  return list, horizon, streams, doubts
end
end
