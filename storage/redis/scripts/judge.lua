-- judge: whether a call is new, a repeat, or too old.

-- judge returns "N" for a call that has to happen now, "R" for the last call of its lane, "O" for an older one,
-- and "E" if its lane has expired. last is the number of the last call, nil for an unknown lane.
local function judge(seq, last, opened, now)
  if last and seq <= last then return seq == last and 'R' or 'O' end
  return math.abs(now - opened) > LANELIFE and 'E' or 'N'
end

