-- record: parses records and writes them anew; see record.go for their layout.

-- later reports whether a record has the format of a later version. Processes that know it can read it.
local function later(rec) return rec and #rec > 0 and byte(rec, 1) > FORMAT and byte(rec, 1) <= LATEST end

local head

do
local flagged = {} -- cache of parsed flag bytes

local function flagsof(f, g)
  local known = flagged[f * 256 + g]
  if not known then
    known = {keep = has(f, 1), untilread = has(f, 2), snoozed = has(f, 4), timed = has(f, 8), life = has(f, 16),
      window = has(f, 32), cursor = has(f, 64), noahead = has(g, 1), side = has(g, 2), large = has(g, 4), placed = has(g, HASPLACE),
      unknown = {f - f % 128, g - g % (2 * INPARTITION)}, more = has(g, HASMORE), keyed = has(g, INPARTITION)}
    flagged[f * 256 + g] = known
  end
  return known
end

-- head returns the parsed header of a record, nil if the record is damaged or has a later format.
function head(rec)
  if not rec or #rec < HEADER or byte(rec, 1) ~= FORMAT then return nil end
  local f, g, a, b, c, d, e, x, y = byte(rec, 2, 10)
  local is = flagsof(f, g)
  local priority, r1, r2, m1, m2, c1, c2, l1, l2, kind, encoding, h1, h2, h3, p1, p2, p3, p4 = byte(rec, 18, 35)
  local h = {rec = rec, created = sub(rec, 11, 17), priority = priority - MAXPRIORITY,
    version = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + x) * 256 + y,
    retries = r1 * 256 + r2, maxretries = m1 * 256 + m2, crashes = c1 * 256 + c2, crashlimit = l1 * 256 + l2,
    kind = kind, encoding = encoding, headers = (h1 * 256 + h2) * 256 + h3,
    payload = ((p1 * 256 + p2) * 256 + p3) * 256 + p4,
    keep = 0, snoozes = 0, since = 0, untilread = is.untilread, timed = is.timed, life = is.life, window = is.window,
    cursor = is.cursor, noahead = is.noahead, side = is.side, large = is.large, parts = '', partition = '', unknown = is.unknown}
  local i = HEADER + 1
  if is.placed then h.place = sub(rec, i, i + PLACE - 1); i = i + PLACE end
  if is.keyed then
    local n = byte(rec, i) or 0
    h.partition = sub(rec, i + 1, i + n)
    i = i + 1 + n
  end
  if is.keep then h.keep = number(rec, i, 7); i = i + 7 end
  if is.snoozed then h.snoozes = number(rec, i, 2); h.since = number(rec, i + 2, 7); i = i + 9 end
  if is.more then
    local n = number(rec, i, 2)
    h.parts = sub(rec, i + 2, i + 1 + n)
    i = i + 2 + n
  end
  h.rest = i
  if h.timed then i = i + 7 end
  if h.life or h.window then
    local n = byte(rec, i) or 0
    h.key = sub(rec, i + 1, i + n)
    i = i + 1 + n
    if h.window then h.keyfor = number(rec, i, 7); i = i + 7 end
  end
  h.cursorat = i
  if h.cursor then i = i + 3 + number(rec, i, 3) end
  h.kindat = i
  h.payloadat = i + h.kind + h.encoding + h.headers
  if h.payloadat + (h.large and 0 or h.payload) ~= #rec + 1 then return nil end
  return h
end

end

-- part: the parts of a record that have numbers.
local part = {}

-- part.at returns the positions of the first and the last byte of the part of a number, nil if there is none.
function part.at(parts, wanted)
  local i = 1
  while i <= #parts do
    local last = i + 2 + number(parts, i + 1, 2)
    if byte(parts, i) == wanted then return i, last end
    i = last + 1
  end
end

-- part.without returns the parts without the part of a number.
function part.without(parts, wanted)
  local first, last = part.at(parts, wanted)
  return first and sub(parts, 1, first - 1) .. sub(parts, last + 1) or parts
end

-- part.cost returns the cost in a record, 1 if the record has none or one that is damaged.
function part.cost(rec)
  local h = has(byte(rec, 3) or 0, HASMORE) and head(rec)
  local first, last = part.at(h and h.parts or '', COSTPART)
  if not first or last ~= first + 2 + COSTSIZE then return 1 end
  return number(h.parts, first + 3, COSTSIZE)
end

-- compose returns the record with the changed header h. It keeps flags and parts of later versions.
local function compose(h)
  local f, g, partition, keep, snooze, parts = h.unknown[1], h.unknown[2], '', '', '', ''
  if h.keep > 0 then f = f + 1; keep = pack7(h.keep) end
  if h.untilread then f = f + 2 end
  if h.snoozes > 0 then f = f + 4; snooze = pack2(h.snoozes) .. pack7(h.since) end
  if h.timed then f = f + 8 end
  if h.life then f = f + 16 end
  if h.window then f = f + 32 end
  if h.cursor then f = f + 64 end
  if h.noahead then g = g + 1 end
  if h.side then g = g + 2 end
  if h.large then g = g + 4 end
  if h.place then g = g + HASPLACE end
  if h.partition ~= '' then g = g + INPARTITION; partition = char(#h.partition) .. h.partition end
  if h.parts ~= '' then g = g + HASMORE; parts = pack2(#h.parts) .. h.parts end
  local r, m, c, l = h.retries % 256, h.maxretries % 256, h.crashes % 256, h.crashlimit % 256
  return char(FORMAT, f, g) .. pack7(h.version) .. h.created ..
    char(h.priority + MAXPRIORITY, (h.retries - r) / 256, r, (h.maxretries - m) / 256, m, (h.crashes - c) / 256, c,
      (h.crashlimit - l) / 256, l) ..
    (h.sizes or sub(h.rec, 27, 35)) .. (h.place or '') .. partition .. keep .. snooze .. parts .. (h.tail or sub(h.rec, h.rest))
end

-- joined returns when a waiting task joined the tail of its priority, nil if its record does not show it.
-- That is the moment in the bytes of the record's place, which a promotion or a change of the place leaves
-- there; a record without a place has the moment of its creation. Real places are far smaller numbers than
-- moments.
local function joined(rec)
  if not rec or #rec < HEADER or byte(rec, 1) ~= FORMAT then return nil end
  local at = number(rec, has(byte(rec, 3), HASPLACE) and HEADER + 1 or 11, 7) -- see record.go
  return at > SPREAD and at or nil
end

-- waits returns the state in which a task waits: z for a suspect, else w.
local function waits(h)
  if h.crashes > 0 and h.crashes == h.crashlimit - 1 then return 'z' end
  return 'w'
end

