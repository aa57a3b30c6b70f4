-- task: reads one task. It writes nothing.
--
-- KEYS  the keys of the queue (keys.go)
-- ARGV  1 id
-- Returns  {} if there is no such task, {"!"} if it was set apart, else {letter of its state, score
--       there, record, lease or "", then its fields of the side hash in the order of KINDS, nil for none}

local q = openall(1)[1]
local id = ARGV[1]
local e = load(q, id)
if not e.st or not e.rec then return call('HGET', q[DAMAGED], id) and {'!'} or {} end
local fields = {}
for i, kind in ipairs(KINDS) do fields[i] = kind .. id end
local aside = call('HMGET', q[SIDE], unpack(fields))
local score = e.lease and expiry(q, id, e.lease) or SETS[e.st] and call('ZSCORE', q[SETS[e.st]], e.member or id)
-- For a declined task the score is the moment when it was declined.
if e.st == 'k' then score = text(number(e.member, #e.member - #id - PLACE + 1, PLACE)) end
local reply = {e.st == 'k' and ring.is(e.member) and 'y' or e.st, score or '0', e.rec, e.lease or ''}
for i = 1, #KINDS do reply[4 + i] = aside[i] end
return reply
