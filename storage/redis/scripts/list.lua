-- list: reads a page of one state of a queue. It writes nothing.
--
-- KEYS  the keys of the queue (keys.go)
-- ARGV  1 letter of the state, 2 page size, 3 and 4 the position of the last task of the page before,
--       both "" for the first page: its score, and its id or place; for a declined task "!" and its
--       kind, for a task in the line of a partition "=" and the key in hexadecimal digits, and its priority and
--       place in hexadecimal digits; 5 "1" if the last tasks of the state come first, else ""; 6 the partition
--       whose line is listed alone, "" for none
-- Returns  {the position of the last task of this page in one text with a space between if there are
--       more tasks, else "", then for each task: its state's letter, id, score, record, lease or "",
--       history or "", large payload or ""}

local MAXPAGE = 4194304 -- bytes of payloads on a page; the first task is listed whatever its size

local q = openall(1)[1]
local size = tonumber(ARGV[2])
local newest = ARGV[5] == '1'

-- behind returns the rank of the first member after the position in ARGV. If the last tasks come first
-- it returns the rank of the first member that is not before the position. Members are sorted by their
-- scores, then by their places or ids, as Redis sorts them.
local function behind(key)
  if ARGV[3] == '' then return newest and call('ZCARD', key) or 0 end
  local low, high = call('ZCOUNT', key, '-inf', '(' .. ARGV[3]), call('ZCOUNT', key, '-inf', ARGV[3])
  while low < high do
    local middle = floor((low + high) / 2)
    local id = call('ZRANGE', key, middle, middle)[1]
    local before = id and not PLACED[ARGV[1]] and not ring.before(ARGV[4], id)
    if id and PLACED[ARGV[1]] then -- no arithmetic on places: a damaged one may be too large
      local at, last = number(id, 1, PLACE), tonumber(ARGV[4]) or 0
      before = at < last or at == last and not newest
    end
    if before then low = middle + 1 else high = middle end
  end
  return low
end

-- scored returns a score as text without an exponent.
local function scored(score) return string.format('%.17g', tonumber(score)) end

local function page(st)
  local key = q[SETS[st]]
  local list, from = {}, behind(key)
  local to = newest and from - 1 or from + size
  if newest then from = max(to - size, 0) end
  local v = to >= 0 and call('ZRANGE', key, from, to, 'WITHSCORES') or list
  for n = 1, #v, 2 do
    local i = newest and #v - n or n
    local score = scored(v[i + 1])
    if PLACED[st] then list[#list + 1] = {st, idof(v[i]), score, text(number(v[i], 1, PLACE))}
    else list[#list + 1] = {st, v[i], score} end
  end
  return list
end

local function before(a, b)
  local x, y = a[3], b[3]
  if x ~= y then x, y = tonumber(x), tonumber(y) end
  if x ~= y then return x < y end
  return ring.before(a[2], b[2])
end

local MOSTLOOKED = 4 * MOSTVOID -- how many members of groups, or entries of the line, a page reads
local short = false -- whether the page ends early, before it is full or the state ends

-- pending returns a page of pending tasks. A group is one member of leases, which comes before other
-- members of the same moment; its tasks are sorted in by id.
local function pending()
  local key, list, looked = q[SETS.p], {}, 0
  local function expand(group, score)
    local ids, _, _, had = members(q, group)
    looked = looked + had
    for _, id in ipairs(ids) do
      if ring.before(ARGV[4], id) or tonumber(score) ~= tonumber(ARGV[3]) then list[#list + 1] = {'p', id, score} end
    end
  end
  local from = behind(key)
  if ARGV[3] ~= '' then
    for _, m in ipairs(call('ZRANGEBYSCORE', key, ARGV[3], ARGV[3], 'LIMIT', 0, 100)) do
      if sub(m, 1, 1) ~= ALARM then break end
      expand(sub(m, 2), ARGV[3])
    end
  end
  local v
  local last = ARGV[3] ~= '' and scored(ARGV[3]) -- the score whose groups are in list and whose others follow
  repeat
    v = call('ZRANGE', key, from, from + size, 'WITHSCORES')
    for i = 1, #v, 2 do
      local m, score = v[i], scored(v[i + 1])
      if score ~= last and #list > 0 and (#list > size or looked > MOSTLOOKED) then
        short = true
        break
      end
      last = score
      if sub(m, 1, 1) == ALARM then expand(sub(m, 2), score) else list[#list + 1] = {'p', m, score} end
    end
    from = from + #v / 2
  until short or #v == 0
  table.sort(list, before)
  return list
end

-- line adds a page of tasks of the line. If it has read too many entries it ends the page with an element
-- without an id, for the position at which the next page goes on.
local function line(list)
  local first, length = firstof(q)
  local at, n, looked, number, after = 0, 0, 0, 0, tonumber(ARGV[3])
  if after then at = max(floor(after) - first, 0) end
  while at < length and n <= size and looked <= MOSTLOOKED do
    local ids = entries(q, first, at, size + 1)
    for i, id in ipairs(ids) do
      number = first + at + i - 1
      looked = looked + 1
      if id and (not after or number > after or number == after and ring.before(ARGV[4], id)) then
        n = n + 1
        list[#list + 1] = {'l', id, text(number)}
      end
    end
    at = at + #ids
  end
  if at < length and n <= size then
    for i = #list, 1, -1 do
      if tonumber(list[i][3]) > number then table.remove(list, i) end
    end
    list[#list + 1] = {'', '', text(number + 1)}
    short = true
  end
end

-- oneline returns a page of a line by name, behind a place in it ('' for none). Suspects, and in a partition the
-- tasks that are claimed only to start at once, come in their places among the other tasks.
local function oneline(name, behind, n)
  local line, at = {}, #name + 2
  for _, class in ipairs(ring.is(name) and {0, DOUBTFUL, PLAIN} or {0, DOUBTFUL}) do
    local from, to = ring.span(name, class)
    if behind ~= '' then from = '(' .. name .. '\0' .. char((byte(behind) + class) % 256) .. sub(behind, 2) .. '\255' end
    for _, m in ipairs(call('ZRANGEBYLEX', q[LINES], from, to, 'LIMIT', 0, n)) do
      local id = sub(m, at + 2 * PLACE + 1)
      if id ~= '' then line[#line + 1] = {char(byte(m, at) % DOUBTFUL) .. sub(m, at + 1, at + PLACE), id, m} end
    end
  end
  table.sort(line, function(x, y) return ring.before(x[1], y[1]) end)
  return line
end

local function hex(v) return (string.gsub(v, '.', function(c) return string.format('%02x', byte(c)) end)) end

local function unhex(v) return (string.gsub(v, '%x%x', function(x) return char(tonumber(x, 16)) end)) end

-- named reports whether the position in ARGV is that of a task in a line by name.
local named = find(ARGV[3], '^[!=]') ~= nil

-- keyed adds tasks in lines by name to a page: declined tasks, then tasks in the lines of partitions. They come
-- behind the other waiting tasks. It leaves out lines that belong to no kind and no partition: the position of
-- a task in such a line would not lead back to that line.
local function keyed(list)
  local name, behind = '', ''
  if named then
    name, behind = 'k' .. sub(ARGV[3], 2), unhex(ARGV[4])
    if byte(ARGV[3], 1) == 61 then name = 'p' .. unhex(sub(ARGV[3], 2)) end
  end
  if ARGV[6] ~= '' then name = 'p' .. ARGV[6] end
  while name and #list <= size do
    local line = (byname.valid(name) or ring.valid(name)) and oneline(name, behind, size + 1) or {}
    for i = 1, min(#line, size + 1 - #list) do
      local place, id, m = unpack(line[i])
      if ring.is(name) then list[#list + 1] = {'y', id, '0', hex(place), '=' .. hex(sub(name, 2))}
      else list[#list + 1] = {'k', id, text(number(m, #m - #id - PLACE + 1, PLACE)), hex(place), '!' .. sub(name, 2)} end
    end
    name, behind = ARGV[6] == '' and byname.lines(q[LINES], name, 1, true)[1], ''
  end
end

local list = {}
if ARGV[1] == 'p' then list = pending()
elseif not named and ARGV[6] == '' then list = page(ARGV[1]) end
if ARGV[1] == 'w' then
  if not named and ARGV[6] == '' then
    for _, t in ipairs(page('z')) do list[#list + 1] = t end
    line(list)
    table.sort(list, before)
  end
  if not short then keyed(list) end
end
local function place(t) return (t[5] or t[3]) .. ' ' .. (t[4] or t[2]) end
local reply = {(short or #list > size) and place(list[min(#list, size)]) or ''}
local ids, logs = {}, {}
for i = 1, min(#list, size) do
  ids[i], logs[i] = list[i][2], 'h:' .. list[i][2]
end
if #ids == 0 then return reply end
local recs, leases, histories = lookup(q[TASKS], ids), lookup(q[PENDING], ids), lookup(q[SIDE], logs)
local bytes = 0
for i = 1, #ids do
  local rec = recs[i]
  if rec then
    bytes = bytes + (#rec >= HEADER and number(rec, 32, 4) or 0)
    if bytes > MAXPAGE and #reply > 1 then
      reply[1] = place(list[i - 1])
      break
    end
    local large = #rec >= HEADER and has(byte(rec, 3), 4) and call('HGET', q[SIDE], 'b:' .. ids[i])
    for _, v in ipairs({list[i][1], ids[i], list[i][3], rec, leases[i] or '', histories[i] or '', large or ''}) do
      reply[#reply + 1] = v
    end
  end
end
return reply
