-- take: what most claims come to, from queues in which nothing is due but scheduled tasks
-- and all that is taken is plain, without all that the general script has to set up. It
-- stands before lib.lua and claim.lua in their script, whose KEYS, ARGV and returns are
-- its own. Where it meets anything out of the ordinary it leaves the call to what follows
-- and has written nothing, except that what fell due stays promoted: that is a step of its
-- own. Here too each step is read and decided before its first write.

local function take()
  local queues, home = {}, KEYS[LANES]
  local most, starts, suspects = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
  local now, mark, nextdue, taken, bytes, fence = 0, 0, 0, 0, 0, ''
  local more, remains, suspicious, cancels = false, false, false, false

  -- count gives a number of meta, 0 where it is none.
  local function count(v)
    local n = tonumber(v or 0)
    return n and n > -NEVER and n < NEVER and n or 0
  end

  -- open reads the clock and the numbers of the queues, and reports whether none of them
  -- is paused or may be forgotten.
  local function open()
    local t, good = call('TIME'), true
    now = t[1] * 1000000 + t[2]
    mark = now
    for i = 1, tonumber(ARGV[1]) do
      local q, at = {}, (i - 1) * BLOCK
      for j = 1, BLOCK do q[j] = KEYS[at + j] end
      local m = call('HMGET', q[META], 'mark', 'touched', 'paused', 'cancels', 'tail', 'awaited', 'turn', 'jumped', 'still')
      q.mark, q.touched, q.tail, q.turn = count(m[1]), count(m[2]), count(m[5]), count(m[7])
      q.deaf, q.still = m[6] ~= '1' and m[1], m[9]
      if mark <= q.mark then mark = q.mark + 1 end
      if count(m[4]) > 0 then cancels = true end
      if m[3] and m[3] ~= '0' or q.touched > 0 and now - q.touched >= QUEUELIFE
        or m[8] and m[8] ~= '0' or q.mark > 0 and (now - q.mark > JUMPAFTER or q.mark - now > JUMPBACK) then -- see jump.lua
        good = false
      end
      queues[i] = q
    end
    return good
  end

  local soonest, work -- when anything is due of the queue under way, and work is, NEVER for none

  -- due reports whether the first of a set is due; what is later is noted, and where it is
  -- work to come.
  local function due(key, works)
    local v = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    local at = v[1] and tonumber(v[2])
    if not at then return false end
    if at <= now then return true end
    soonest = min(soonest, at)
    if works then work = min(work, at) end
    return false
  end

  local PROMOTED = 300 -- most tasks of a call that fall due
  local promoted = 0

  -- promote moves what is due of the scheduled tasks to waiting, as a step of its own that
  -- stays whatever becomes of the claim. It returns false where that is not plain.
  local function promote(q)
    if promoted > 0 then return false end -- a second queue with much to do
    local ids = call('ZRANGEBYSCORE', q[SCHEDULED], '-inf', text(now), 'LIMIT', 0, PROMOTED)
    for i = 1, #ids do ids[i] = sub(ids[i], PLACE + 1) end
    local recs, places, line, turn = call('HMGET', q[TASKS], unpack(ids)), {}, {}, q.turn
    for i = 1, #ids do
      local rec = recs[i]
      if not rec or #rec < HEADER or byte(rec, 1) ~= 1 then return false end
      local c1, c2, l1, l2 = byte(rec, 23, 26)
      if c1 + c2 > 0 and c1 * 256 + c2 == l1 * 256 + l2 - 1 then return false end -- a suspect
      local priority = byte(rec, 18) - 9
      if priority == 0 then line[#line + 1] = ids[i] else
        turn = turn + 1
        places[#places + 1], places[#places + 2] = turn - priority * 281474976710656, ids[i] -- place in lib.lua
      end
    end
    call('ZCARD', q[WAITING]) -- keys of a wrong type fail here, in time
    call('LLEN', q[LINE])
    local first = redis.pcall('HDEL', q[META], '')
    if type(first) == 'table' and first.err then return false end -- the general script says why
    call('ZREMRANGEBYRANK', q[SCHEDULED], 0, #ids - 1)
    ask('ZADD', q[WAITING], places)
    ask('RPUSH', q[LINE], line)
    q.tail, q.turn, q.mark, promoted = q.tail + #line, turn, mark, #ids
    call('HSET', q[META], 'mark', text(mark), 'tail', text(q.tail), 'turn', text(turn))
    q.moved = true
    redis.pcall('PUBLISH', sub(q[META], 1, -5) .. 'wake', 'w')
    mark = mark + 1
    more = due(q[SCHEDULED], true)
    return true
  end

  -- quiet reports whether a queue needs no maintenance, or no more.
  local function quiet(q)
    if due(q[LEASES]) then return false end
    -- Most queues have nothing but waiting and pending tasks.
    q.bare = call('EXISTS', q[SCHEDULED], q[RETRY], q[CURSORS], q[COMPLETED], q[CANCELLED], q[WINDOWS], q[DEAD],
      q[SUSPECTS], q[VOIDS]) == 0
    if q.bare then return true end
    if due(q[RETRY], true) or due(q[CURSORS], true)
      or due(q[COMPLETED]) or due(q[CANCELLED]) or due(q[WINDOWS]) then
      return false
    end
    local dead = call('ZCARD', q[DEAD])
    if dead > 0 then
      local oldest = call('ZRANGE', q[DEAD], 0, 0, 'WITHSCORES')[2]
      if dead > tonumber(ARGV[12]) or tonumber(oldest) <= now - ARGV[11] then return false end
      soonest = min(soonest, oldest + ARGV[11])
    end
    return not due(q[SCHEDULED], true) or promote(q)
  end

  -- rests reports whether a queue has been found quiet before, and nothing has happened there or
  -- fallen due since: each step that writes to a queue moves its mark. That is all that a call
  -- reads which only maintains it.
  local function rests(q)
    local seen, untl, works = string.match(q.still or '', '^(%d+):(%d+):(%d+)$')
    if tonumber(seen) ~= q.mark or now >= tonumber(untl) then return false end
    soonest, work = tonumber(untl), tonumber(works)
    return true
  end

  -- leaseof gives the flags that the lease of a record begins with, by what the record
  -- begins with; false where it is not plain.
  local function leaseof(lead)
    local form, f, g = byte(lead, 1, 3)
    g = g % HASPLACE
    if form ~= 1 or g ~= 0 and g ~= 2 then return false end -- not to be claimed ahead, or large
    if f % 4 > 0 or floor(f / 16) % 2 == 1 or g == 2 then return RECORD end -- as in claim.lua
    return 0
  end

  local known = {}

  local function add(list, more) for i = 1, #more do list[#list + 1] = more[i] end end

  -- heads gives the n tasks that come first: what is before the line in waiting, the line, and
  -- the rest. It notes how many of them are where.
  local function heads(q, n)
    local ids, ranked, lined = {}, call('ZCARD', q[WAITING]), call('LLEN', q[LINE])
    local high = ranked
    if lined > 0 and ranked > 0 then high = call('ZCOUNT', q[WAITING], '-inf', BEHIND) end
    remains = remains or ranked + lined > n
    if high > 0 then ids = call('ZRANGE', q[WAITING], 0, min(high, n) - 1) end
    q.high, q.lined = #ids, min(lined, n - #ids)
    if q.lined > 0 then add(ids, call('LRANGE', q[LINE], 0, q.lined - 1)) end
    if #ids < n and ranked > high then add(ids, call('ZRANGE', q[WAITING], high, high + n - #ids - 1)) end
    q.ranked = #ids - q.lined
    return ids
  end

  -- void reports whether one of the entries to be taken is void, as entries in lib.lua says, or
  -- voids has no more of such: the general script sees to either.
  local function void(q, ids)
    local first = q.tail - call('LLEN', q[LINE]) + 1
    if call('ZCOUNT', q[VOIDS], text(first), '+inf') == 0 then return true end
    for i = 1, q.lined, 500 do
      local upto = call('ZMSCORE', q[VOIDS], unpack(ids, q.high + i, q.high + min(i + 499, q.lined)))
      for j = 1, #upto do
        if upto[j] and tonumber(upto[j]) >= first + i + j - 2 then return true end
      end
    end
    return false
  end

  -- choose reads what is to be taken of a queue. It returns false where that is not plain.
  local function choose(q, n)
    local ids, recs, all = heads(q, n), q.recs, q.flags
    q.ids = ids
    if not q.bare and call('EXISTS', q[VOIDS]) == 1 and void(q, ids) then return false end
    for i = 1, #ids, 500 do
      local found = call('HMGET', q[TASKS], unpack(ids, i, min(i + 499, #ids)))
      for j = 1, #found do
        local rec = found[j]
        if not rec or #rec < HEADER then return false end
        local lead = sub(rec, 1, 3)
        local flags = known[lead]
        if flags == nil then
          flags = leaseof(lead)
          known[lead] = flags
        end
        if not flags then return false end
        recs[i + j - 1], all[i + j - 1] = rec, flags
        bytes = bytes + #rec - HEADER
      end
    end
    taken = taken + #ids
    return bytes <= MAXBYTES
  end

  -- look goes through the queues and reports whether all is plain.
  local function look()
    for i, q in ipairs(queues) do
      q.ids, q.recs, q.flags, q.first = {}, {}, {}, taken
      local limit = tonumber(ARGV[12 + i])
      soonest, work = q.touched > 0 and q.touched + QUEUELIFE or NEVER, NEVER
      q.rests = limit < 0 and rests(q)
      if not q.rests and not quiet(q) then return false end
      if work < NEVER and (nextdue == 0 or work < nextdue) then nextdue = work end
      if limit < 0 and not q.moved then q.seen = text(soonest) .. ':' .. text(work) end
      if limit >= 0 then
        if suspects ~= '0' and not q.bare and call('ZCARD', q[SUSPECTS]) > 0 then
          if suspects == '1' then return false end
          suspicious = true
        end
        local n = min(limit == 0 and most or limit, most - taken)
        if n > 0 then
          if not choose(q, n) then return false end
        elseif call('ZCARD', q[WAITING]) + call('LLEN', q[LINE]) > 0 then
          remains = true
        end
      end
      if #q.ids > 0 and call('HLEN', q[PENDING]) == 0 then q.pad = true end -- also: a key of a wrong type fails here, in time
      if #q.ids >= SINGLES then call('HLEN', q[CLAIMS]) end
    end
    return true
  end

  -- lease writes the leases of what is taken of a queue.
  local function lease(q, joined)
    local ids, flags, n, pending, values = q.ids, q.flags, #q.ids, {}, {}
    local grouped, deadline = n < SINGLES and 0 or GROUPED, text(now + ARGV[10])
    for i = 1, n do
      local f = flags[i] + grouped
      if q.first + i <= starts then f = f + STARTED end
      local value = values[f]
      if grouped == 0 then
        value = fence .. char(f, 0, i - 1) .. ARGV[6]
      elseif not value then
        value = fence .. char(f) .. ARGV[6]
        values[f] = value
      end
      pending[2 * i - 1], pending[2 * i] = ids[i], value
    end
    if q.pad then pending[2 * n + 1], pending[2 * n + 2] = '', PAD end
    if q.ranked > 0 then call('ZREMRANGEBYRANK', q[WAITING], 0, q.ranked - 1) end
    if q.lined > 0 then call('LTRIM', q[LINE], q.lined, -1) end
    ask('HSET', q[PENDING], pending)
    if grouped == 0 then
      local alarms = {}
      for i = 1, n do alarms[2 * i - 1], alarms[2 * i] = deadline, ids[i] end
      call('ZADD', q[LEASES], unpack(alarms))
    else
      call('ZADD', q[LEASES], deadline, ALARM .. fence)
      call('HSET', q[CLAIMS], fence, joined, COUNT .. fence, n)
    end
  end

  -- keep writes the numbers of a queue.
  local function keep(q)
    if q.seen then -- it was only looked at
      if q.mark > 0 and (not q.rests or now - q.mark > RESTFOR) then
        call('HSET', q[META], 'mark', text(mark), 'still', text(mark) .. ':' .. q.seen)
      end
      return
    end
    local list = {}
    if #q.ids > 0 or q.mark > 0 and (q == queues[1] or now - q.mark > MARKEVERY) then list = {'mark', text(mark)} end
    if #q.ids > 0 and now - q.touched > 60000000 then list[3], list[4] = 'touched', text(now) end
    if q.deaf then list[#list + 1] = 'awaited'; list[#list + 1] = '1' end
    if #list > 0 then call('HSET', q[META], unpack(list)) end
  end

  if not open() or not follows(home, ARGV[2], ARGV[3], ARGV[4], now) or not look() then return nil end
  local first = redis.pcall('HDEL', KEYS[META], '')
  if type(first) == 'table' and first.err then return nil end -- the general script says why
  mark = mark + 1
  fence = ARGV[5] .. pack7(mark)
  local outcome = {'C' .. pack7(mark) .. '0' .. taken .. '|'}
  local reply = {'N', text(now), text(nextdue), (more and 'm' or '') .. (remains and 't' or '') ..
    (cancels and 'c' or '') .. (suspicious and 's' or ''), text(mark), taken, 0}
  for i, q in ipairs(queues) do
    local joined, last = table.concat(q.ids, ','), q.bare and 'b' or ''
    reply[7 + i] = last
    if #q.ids > 0 then
      lease(q, joined)
      local lengths, pieces = packed(q.recs)
      reply[7 + i] = {'', joined, lengths, pieces, {}, last}
    end
    keep(q)
    outcome[i + 1] = joined .. ';'
  end
  call('HSET', home, ARGV[2], ARGV[3] .. ':' .. table.concat(outcome))
  return reply
end

do
  local reply = take()
  if reply then return reply end
end
