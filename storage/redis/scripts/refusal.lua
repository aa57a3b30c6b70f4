-- refusal returns the error reply for a script whose first write was not permitted. The reply begins
-- with the code of the error; an error of Redis without a code (a user without permission) gets the code
-- REFUSED. Redis 6.2 puts the position in the script before the code, as in "@user_script: 815: -OOM command
-- not allowed ...". refusal removes that position, because a client finds out only by a code READONLY at the
-- beginning that the server is a master no longer.
local function refusal(first)
  local why = string.gsub(first.err, '^@user_script: ?%d+: ', '')
  why = string.gsub(why, '^%-', '')
  if string.find(why, '^ERR ') or not string.find(why, '^%u+ ') then why = 'REFUSED ' .. why end
  return {err = why}
end

