-- jump: a clock that is far past the mark of the last step may be back in a moment. Until it
-- is clear that it stays, what is timed waits: nothing is promoted, recovered, handed out or
-- swept.

-- waitsince gives since when that is so, by the mark, the beginning that was noted (0 for
-- none) and the clock; 0 where it is not. A clock that stands before the beginning jumped back.
local function waitsince(mark, noted, now)
  if noted > 0 then return now >= noted and now - noted < JUMPWAIT and noted or 0 end
  return mark > 0 and now - mark > JUMPAFTER and now or 0
end

