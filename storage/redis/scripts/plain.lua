-- plain: what most calls of apply come to, completions and inserts on which nothing
-- hangs, without all that the general script has to set up. It stands before lib.lua
-- and apply.lua in their script, whose KEYS, ARGV and returns are its own. Where it
-- meets anything out of the ordinary it has written nothing, and leaves the call to
-- what follows. Here too all is read and decided before the first write.

local function plain()
  local grows = ARGV[2] == 'i'
  local queues, runs, lanes, now = {}, {}, {}, 0

  -- open reads the clock and the numbers of the queues.
  local function open()
    local t = call('TIME')
    now = t[1] * 1000000 + t[2]
    for i = 1, tonumber(ARGV[1]) do
      local at = (i - 1) * BLOCK
      local m = call('HMGET', KEYS[at + META], 'mark', 'touched', grows and 'enqueued' or 'completed', 'tail')
      local q = {at = at, count = tonumber(m[3] or 0), tail = tonumber(m[4] or 0), n = 0, groups = {}}
      if now - (m[2] or 0) > 60000000 then q.touched = true end
      if m[1] and now <= tonumber(m[1]) then now = m[1] + 1 end
      queues[i], queues[ARGV[4 + i]] = q, q
    end
  end

  -- admitted reports whether the call at a is the next one of a lane that is known. It
  -- notes where the outcome is to be remembered.
  local function admitted(a, n)
    local field, seq, key = ARGV[a], ARGV[a + 1], KEYS[queues[ARGV[a + 3]].at + LANES]
    if seq == '0' then return true end
    local list = lanes[key] or {}
    if list[field] or not follows(key, field, seq, ARGV[a + 2], now) then return false end
    lanes[key], list[field] = list, true
    list[#list + 1], list[#list + 2] = field, {seq, n}
    return true
  end

  -- ids takes a list of n ids apart, which are of one width or, if that is 0, not.
  local function ids(s, n, width)
    local list = {}
    if width > 0 then
      for i = 1, n do
        local at = (i - 1) * (width + 1)
        list[i] = sub(s, at + 1, at + width)
      end
    else
      for id in string.gmatch(s, '[^,]+') do list[#list + 1] = id end
    end
    return list
  end

  -- completes reads a run of completions: all under a fence that holds, with nothing
  -- hanging on the tasks. Those that are of no group have an alarm of their own.
  local function completes(q, a)
    local fence, list = ARGV[a + 2], ids(ARGV[a + 5], tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4]))
    local good, alarms = {}, {}
    for i = 1, #list, 500 do
      local leases = call('HMGET', KEYS[q.at + PENDING], unpack(list, i, min(i + 499, #list)))
      for j = 1, #leases do
        local l = leases[j]
        local flags = good[l]
        if not flags then
          if not l or sub(l, 1, FENCE) ~= fence then return nil end
          flags = byte(l, FENCE + 1)
          if flags % GROUPED > STARTED then return nil end -- something hangs on it
          good[l] = flags
        end
        if flags < GROUPED then alarms[#alarms + 1] = list[i + j - 1] end
      end
    end
    if #list > #alarms and not q.groups[fence] then
      q.groups[fence] = tonumber(call('HGET', KEYS[q.at + CLAIMS], COUNT .. fence) or 0)
    end
    return {q = q, ids = list, fence = fence, alarms = alarms}, a + 6
  end

  -- inserts reads a run of inserts, of ids that are new.
  local function inserts(q, a)
    local run, seen = {q = q, ids = {}, lead = ARGV[a + 2], at = a + 5}, q.seen or {}
    local list = run.ids
    q.seen = seen
    for i = 1, tonumber(ARGV[a + 3]) do
      local id = ARGV[a + 2 + 2 * i]
      if seen[id] then return nil end
      list[i], seen[id] = id, true
    end
    for i = 1, #list, 500 do
      local found = call('HMGET', KEYS[q.at + TASKS], unpack(list, i, min(i + 499, #list)))
      for j = 1, #found do
        if found[j] then return nil end
      end
    end
    return run, a + 4 + 2 * #list
  end

  -- read reads all calls. It returns them, or nothing where one is not plain.
  local function read()
    local calls, a = {}, 5 + #queues
    for i = 1, tonumber(ARGV[4]) do
      if not admitted(a, i) then return nil end
      local txs, last = tonumber(ARGV[a + 4]), #runs
      a = a + 5
      while txs > 0 do
        local q = queues[ARGV[a + 1]]
        txs = txs - ARGV[a + 3]
        local run, after = (grows and inserts or completes)(q, a)
        if not run then return nil end
        runs[#runs + 1], a = run, after
      end
      calls[i] = {last + 1, #runs}
    end
    for _, q in ipairs(queues) do -- a key of a wrong type fails here, in time
      call('ZCARD', KEYS[q.at + (grows and WAITING or LEASES)])
      if not grows then call('HLEN', KEYS[q.at + TASKS]) end
    end
    return calls
  end

  -- lost gives the outcome of a run of which some tasks were completed earlier in this
  -- call.
  local function lost(run)
    local out, seen = {}, {}
    for _, r in ipairs(runs) do
      for i, id in ipairs(r.ids) do
        if r == run then out[i] = seen[id] and 'R\0\1l\0\1' or 'Kc' end
        seen[id] = seen[id] or r.q == run.q
      end
      if r == run then return table.concat(out) end
    end
  end

  -- complete writes a run of completions and returns its outcome.
  local function complete(run)
    local q, list = run.q, run.ids
    local n = ask('HDEL', KEYS[q.at + PENDING], list)
    ask('HDEL', KEYS[q.at + TASKS], list)
    local grouped = n - ask('ZREM', KEYS[q.at + LEASES], run.alarms)
    if grouped > 0 then q.groups[run.fence] = q.groups[run.fence] - grouped end
    q.n = q.n + n
    return n == #list and '*c' or lost(run)
  end

  -- insert writes a run of inserts and returns its outcome.
  local function insert(run)
    local q, list, records, places = run.q, run.ids, {}, {}
    local stamp, tail = pack7(now), q.tail
    local lead = run.lead .. stamp .. stamp
    for i = 1, #list do
      local rest = ARGV[run.at + 2 * i - 2]
      records[2 * i - 1], records[2 * i] = list[i], lead .. rest
      places[2 * i - 1] = tail + i - (byte(rest, 1) - 9) * 281474976710656 -- place in lib.lua
      places[2 * i] = list[i]
    end
    q.tail = tail + #list
    ask('HSET', KEYS[q.at + TASKS], records)
    ask('ZADD', KEYS[q.at + WAITING], places)
    return '*w'
  end

  -- regroup writes how many tasks groups have left.
  local function regroup(q)
    for group, count in pairs(q.groups) do
      local claims = KEYS[q.at + CLAIMS]
      if count > 0 then
        call('HSET', claims, COUNT .. group, count)
      else
        call('HDEL', claims, group, COUNT .. group)
        call('ZREM', KEYS[q.at + LEASES], ALARM .. group)
      end
    end
  end

  -- numbers gives what a queue's numbers come to at a moment.
  local function numbers(q, at)
    local list = {'mark', text(at), grows and 'enqueued' or 'completed', text(q.count + q.n)}
    if q.touched then list[5], list[6] = 'touched', list[2] end
    if grows then list[#list + 1], list[#list + 2] = 'tail', text(q.tail + q.n) end
    return unpack(list)
  end

  open()
  local calls = read()
  if not calls then return nil end
  -- The first write tells whether Redis permits any; where not, the general script says
  -- why. A full Redis refuses inserts there and completions nowhere.
  local first
  if grows then
    for _, run in ipairs(runs) do run.q.n = run.q.n + #run.ids end
    for i, q in ipairs(queues) do
      local done = redis.pcall('HSET', KEYS[q.at + META], numbers(q, now + #runs))
      first = first or done
      if type(first) == 'table' and first.err then return nil end
    end
  else
    first = redis.pcall('HDEL', KEYS[META], '')
    if type(first) == 'table' and first.err then return nil end
  end
  local reply = {0}
  for i, c in ipairs(calls) do
    local out = {'A', pack7(now)}
    for j = c[1], c[2] do
      now = now + 1
      out[#out + 1] = (grows and insert or complete)(runs[j])
    end
    reply[i + 1] = table.concat(out)
  end
  for lane, list in pairs(lanes) do
    for i = 2, #list, 2 do list[i] = list[i][1] .. ':' .. reply[list[i][2] + 1] end
    call('HSET', lane, unpack(list))
  end
  for _, q in ipairs(queues) do
    if grows then -- a user of Redis may have no channels: a hint must not tear the step
      redis.pcall('PUBLISH', sub(KEYS[q.at + META], 1, -5) .. 'wake', 'w')
    else
      regroup(q)
      call('HSET', KEYS[q.at + META], numbers(q, now))
    end
  end
  for i = 2, #reply do reply[i] = 'N' .. reply[i] end
  reply[1] = text(now)
  return reply
end

if ARGV[2] == 'c' or ARGV[2] == 'i' then
  local reply = plain()
  if reply then return reply end
end
