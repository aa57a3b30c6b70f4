-- refusal is the reply where the first write was not permitted, told by a code that begins it.
-- What Redis gives no code of its own (a user without permission) gets one. Redis 6.2 tells from
-- within a script first where that stands, "@user_script: 815: -OOM command not allowed ...": as
-- READONLY alone a client takes it for a master that is none any more.
local function refusal(first)
  local why = string.gsub(first.err, '^@user_script: ?%d+: ', '')
  why = string.gsub(why, '^%-', '')
  if string.find(why, '^ERR ') or not string.find(why, '^%u+ ') then why = 'REFUSED ' .. why end
  return {err = why}
end

