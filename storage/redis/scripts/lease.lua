-- lease: functions for leases and replies that both ways of a claim share. They use no local variables
-- of other files as upvalues: to make such a function costs more than half of a command.

-- needs returns RECORD, the flag of a lease whose end takes more than the removal of the task, or 0. f
-- and g are the flags of the task's record.
local function needs(f, g)
  return (f % 4 > 0 or f % 32 > 15 or g % 8 > 1) and RECORD or 0
end

-- leases returns the arguments with which a claim writes the tasks that it took from a queue: for the hash
-- pending, for the set leases and, if the tasks form a group, for the hash claims. joined has their ids. counted
-- has the ends of the leases of tasks that count for the Concurrency of their partitions, nil for none.
local function leases(ids, flags, fence, runner, deadline, joined, counted)
  local n, pending, char = #ids, {}, string.char
  if n < SINGLES then
    local alarms = {}
    for i = 1, n do
      pending[2 * i - 1], pending[2 * i] = ids[i], fence .. char(flags[i], 0, i - 1) .. runner .. (counted and counted[i] or '')
      alarms[2 * i - 1], alarms[2 * i] = deadline, ids[i]
    end
    return pending, alarms
  end
  local values = {}
  for i = 1, n do
    local value = not (counted and counted[i]) and values[flags[i]]
    if not value then
      value = fence .. char(flags[i] + GROUPED) .. runner .. (counted and counted[i] or '')
      values[flags[i]] = value
    end
    pending[2 * i - 1], pending[2 * i] = ids[i], value
  end
  return pending, {deadline, ALARM .. fence}, {fence, joined, COUNT .. fence, n}
end

-- packed returns the length of each record in 4 bytes, and the records joined to a few texts. One long
-- text would cost Lua more than it saves, and a text for each record would cost the client more, except
-- if the records are long: the Lua of Redis hashes each byte of each text.
local function packed(records)
  local lengths, pieces, concat, last, v = {}, {}, table.concat, nil, nil
  for i = 1, #records do
    local n = #records[i]
    if n ~= last then
      local d, c, b = n % 256, n % 65536, n % 16777216
      last, v = n, string.char((n - b) / 16777216, (b - c) / 65536, (c - d) / 256, d)
    end
    lengths[i] = v
  end
  if #records == 1 then return v, records end
  local i = 1
  while i <= #records do
    local upto = i
    if #records[i] < ALONE then upto = i + 31 < #records and i + 31 or #records end
    pieces[#pieces + 1] = upto > i and concat(records, '', i, upto) or records[i]
    i = upto + 1
  end
  return concat(lengths), pieces
end
