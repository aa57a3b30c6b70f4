-- jump: a clock that is far later than at the last step may have jumped ahead, and may jump back in a
-- moment. Timed work waits until the clock has stayed ahead for JUMPWAIT: meanwhile no step promotes,
-- recovers, hands out or sweeps anything.

-- waitsince returns the moment since which timed work waits, 0 if it does not wait. last is the clock of the
-- last step (0 for none), noted the beginning of a wait that was noted (0 for none), now the clock. A clock
-- before that beginning has jumped back.
local function waitsince(last, noted, now)
  if last > 0 and now - last > JUMPAFTER then return now end
  return noted > 0 and now >= noted and now - noted < JUMPWAIT and noted or 0
end

