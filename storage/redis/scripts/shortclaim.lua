-- shortclaim: the short way of claim.lua for most claims: of plain tasks from queues in which nothing is
-- due. It stands before claim.lua in the same script, and has the same KEYS, ARGV and reply. It reads and
-- decides everything before its first write. If it meets anything else it writes nothing, and
-- claim.lua carries the call out. The number soon of a queue shows whether anything is due: see moments
-- in commit.lua. It is one long function for the reason in shortinsert.lua.

if SHORT then
  local function claim()
    local call, K, A, byte, text = redis.call, KEYS, ARGV, string.byte, string.format
    local t, v = call('TIME'), call('HGET', K[LANES], A[2])
    local now, lane = t[1] * 1000000 + t[2], v and sane(string.match(v, '^%d+'))
    local total, most, starts, age = tonumber(A[1]), tonumber(A[7]), tonumber(A[8]), now - A[4]
    if A[#A - 1] ~= '' then return nil end -- a queue was left out
    if not lane or tonumber(A[3]) <= lane or age > LANELIFE or age < -LANELIFE then return nil end
    local mark, nextdue, cancels, suspicious, remains = now, 0, false, false, false
    local metas = {}
    for i = 1, total do
      local m = call('HMGET', K[(i - 1) * BLOCK + META], 'mark', 'soon', 'due', 'odd', 'void', 'touched', 'cancels', 'lines')
      local last, soon, due = sane(m[1]), sane(m[2]), sane(m[3] or 0)
      if not (last and soon and due) or soon <= now or now - last > JUMPAFTER or last - now > JUMPBACK then
        return nil
      end
      -- The lines of kinds have to be read, and limits, partitions and a rest, for which lines is negative.
      local unknown = m[8] and m[8] ~= A[11 + total + i]
      if unknown and (A[10 + i] ~= MAXNONE or (sane(m[8], -1) or -1) < 0) then return nil end
      if mark <= last then mark = last + 1 end
      if due > 0 and (nextdue == 0 or due < nextdue) then nextdue = due end
      cancels = cancels or m[7] and m[7] ~= '0' and sane(m[7]) ~= nil
      m[1], m[2], metas[i] = last, soon, m
    end

    -- Take from each queue the tasks of waiting before the line, the line, and the rest of waiting.
    local taken, bytes, hauls = 0, 0, {}
    for i = 1, total do
      local at, m, limit, ids = (i - 1) * BLOCK, metas[i], tonumber(A[10 + i]), {}
      local recs, flags, ranked, lined, high, left, side = {}, {}, 0, 0, 0, false, nil
      if limit >= 0 then
        ranked, lined = call('ZCARD', K[at + WAITING]), call('LLEN', K[at + LINE])
        local n, void, before = most - taken, sane(m[5] or 0), 0
        if not void then return nil end -- it is damaged
        if void > 0 or m[4] then
          before = sane(call('HGET', K[at + META], 'tail') or 0)
          if not before then return nil end
          before = before - lined
        end
        if limit > 0 and limit < n then n = limit end
        if m[4] and A[9] ~= '0' then -- there have been suspects: is it the turn of one now?
          local suspect = call('ZRANGE', K[at + SUSPECTS], 0, 0, 'WITHSCORES')
          suspicious = suspicious or suspect[1]
          if suspect[1] and A[9] == '1' and starts > 0 then
            remains = true
            if taken < starts and n > 0 and (ranked > 0 or n > lined or tonumber(suspect[2]) < before + n) then return nil end
          end
        end
        left = n < ranked + lined - void
        remains = remains or left
        if n > ranked + lined then n = ranked + lined end
        high = ranked
        if ranked > 0 and lined > 0 then high = call('ZCOUNT', K[at + WAITING], '-inf', BEHIND) end
        if high > n then high = n end
        if lined > n - high then lined = n - high end
        if high > 0 then ids = call('ZRANGE', K[at + WAITING], 0, high - 1) end
        if lined > 0 then
          local line = call('LRANGE', K[at + LINE], 0, lined - 1)
          local upto = void > 0 and call('ZMSCORE', K[at + VOIDS], unpack(line))
          for j = 1, lined do
            if upto and upto[j] and tonumber(upto[j]) >= before + j then return nil end -- void: see lib.lua
            ids[high + j] = line[j]
          end
        end
        ranked = n - lined
        if ranked > high then
          local rest = call('ZRANGE', K[at + WAITING], high, ranked - 1)
          for j = 1, #rest do ids[high + lined + j] = rest[j] end
        end
      end
      local n = #ids
      if n > 0 then
        recs = call('HMGET', K[at + TASKS], unpack(ids))
        for j = 1, n do
          local rec, begins = recs[j], taken + j <= starts
          if not rec or #rec < HEADER or ids[j] == '' then return nil end
          local form, f, g = byte(rec, 1, 3)
          -- The record is damaged, or the task must not be claimed ahead.
          if form ~= FORMAT or g % 2 == 1 and not begins then return nil end
          local size, large = #rec - HEADER, g % 8 > 3
          if large then
            local a, b, c, d = byte(rec, 32, 35)
            size = ((a * 256 + b) * 256 + c) * 256 + d
          end
          if bytes + size > MAXBYTES and taken + j > 1 then -- the reply has no room for more tasks
            n, left, remains, most = j - 1, true, true, taken + j - 1
            for over = #ids, j, -1 do ids[over], recs[over] = nil, nil end
            if high > n then high = n end
            if lined > n - high then lined = n - high end
            ranked = n - lined
            break
          end
          if large then side = K[at + SIDE] end
          flags[j] = (f + g > 0 and needs(f, g) or 0) + (begins and STARTED or 0)
          bytes = bytes + size
        end
        taken = taken + n
        m.bare = call('HLEN', K[at + PENDING]) == 0
        if side then call('HLEN', side) end -- the client reads large payloads
        if n >= SINGLES then call('HLEN', K[at + CLAIMS]) end -- fails here if the key has a wrong type
      end
      -- The first write shows whether Redis permits writes. It frees memory, so that a full Redis accepts it.
      if (n > 0 or i == total) and type(redis.pcall('ZREM', K[at + LEASES], '')) == 'table' then return nil end
      hauls[i] = {ids, recs, flags, ranked, lined, limit, left}
    end

    local stamp, at, deadline, outcome, records, sizes = pack7(mark), text('%d', mark), now + A[10], {}, {}, ''
    if tonumber(at) ~= mark then return nil end -- %d cannot format it: a 32-bit Redis
    local fence, till = A[5] .. stamp, text('%d', deadline)
    for i = 1, total do
      local k, m, h, joined = (i - 1) * BLOCK, metas[i], hauls[i], ''
      local ids, limit = h[1], h[6]
      local n, rests = #ids, limit < 0 and RESTFOR or i > 1 and MARKEVERY or -NEVER
      for j = 1, total > 1 and n or 0 do records[#records + 1] = h[2][j] end
      if n > 0 then
        joined = n > 1 and table.concat(ids, ',') or ids[1]
        if h[4] > 0 then call('ZREMRANGEBYRANK', K[k + WAITING], 0, h[4] - 1) end
        if h[5] > 0 then call('LTRIM', K[k + LINE], h[5], -1) end
        local pending, alarms, group = leases(ids, h[3], fence, A[6], till, joined)
        if m.bare then pending[2 * n + 1], pending[2 * n + 2] = '', PAD end
        call('ZADD', K[k + LEASES], unpack(alarms))
        if group then call('HSET', K[k + CLAIMS], unpack(group)) end
        call('HSET', K[k + PENDING], unpack(pending))
        if deadline < m[2] or now - (sane(m[6]) or 0) > TOUCHEVERY then
          call('HSET', K[k + META], 'mark', at, 'touched', text('%d', now),
            'soon', text('%d', deadline < m[2] and deadline or m[2]))
        else
          call('HSET', K[k + META], 'mark', at)
        end
      elseif now - m[1] > rests then
        call('HSET', K[k + META], 'mark', at)
      end
      if limit >= 0 and most > 0 then
        if h[7] then rouse(K[k + IDLE], K[k + META], 2, now)
        else redis.pcall('ZADD', K[k + IDLE], text('%d', now), A[#A]) end -- a key of a wrong type must not tear the step
      end
      outcome[i], sizes = joined, sizes .. text('%04d%08d', n, #joined)
    end
    call('HSET', K[LANES], A[2], A[3] .. ':C' .. stamp .. '0' .. taken .. '|' .. table.concat(outcome, ';') .. ';')
    local head = text('N%016d%016d%016d%04d', now, nextdue, mark, taken) .. (remains and 't' or '') ..
      (cancels and 'c' or '') .. (suspicious and 's' or '') .. ';' .. sizes
    if taken == 0 then return head end
    head = head .. table.concat(outcome)
    local lengths, pieces = packed(total > 1 and records or hauls[1][2])
    if #pieces == 1 then return head .. lengths .. pieces[1] end
    return {head .. lengths, unpack(pieces)}
  end
  local reply = claim()
  if reply then return reply end
end
