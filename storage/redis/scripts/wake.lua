-- wake: how a step wakes idle processes, for the short ways and the general ways of scripts.

-- rouse publishes a wake-up for each of n processes that wait for work of a queue, in the order of their
-- marks, and removes their marks. It passes over processes that do not hear it, because they have ended, and
-- over old marks, up to eight of them. On a Cluster the reply to PUBLISH does not show which process hears. A
-- failed wake-up must not abort the step: the user may have no permission for channels.
local function rouse(idle, meta, n, now)
  local call = redis.pcall
  for _ = 1, n + 8 do
    local v = call('ZRANGE', idle, 0, 0, 'WITHSCORES')
    if not v[1] then return end
    call('ZREM', idle, v[1])
    if now - v[2] < IDLEFOR and (call('PUBLISH', string.sub(meta, 1, -5) .. 'wake:' .. v[1], 'w') ~= 0 or CLUSTER) then
      n = n - 1
      if n == 0 then return end
    end
  end
end
