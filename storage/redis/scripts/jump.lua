-- jump: a clock that is far past where the last step saw it may be back in a moment. Until it
-- is clear that it stays, what is timed waits: nothing is promoted, recovered, handed out or
-- swept.

-- waitsince gives since when that is so, by the clock of the last step (0 for none), the
-- beginning that was noted (0 for none) and the clock; 0 where it is not. A clock that stands
-- before the beginning jumped back.
local function waitsince(last, noted, now)
  if last > 0 and now - last > JUMPAFTER then return now end
  return noted > 0 and now >= noted and now - noted < JUMPWAIT and noted or 0
end

