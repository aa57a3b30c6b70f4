-- ready promotes due tasks of a queue, hides due cursors, ends pauses of partitions that are over, and
-- returns the facts of the queue that a claim needs: its number, null if there is none; whether it is paused
-- (held; no pause ends in a wait, see come); whether it has a limit (limited); whether its tasks without a
-- partition rest (resting); whether tasks wait before the place low (early); whether some only start at once
-- (prompts), are suspects, were declined and are of the named kinds (declined), or have a partition that is
-- ready (keyed); whether the cancel of a running task was asked (asked); the places of the cursors that are
-- handed out (ticks), and the bytes of the cursors that it saw (ticked; see hide); whether it changed
-- anything; whether more due work can be had at once (more); whether nothing due is left (clean); when
-- something is due next; and how many turns after now it assigned to partitions (turns). ring is the turn
-- before which no ready partition is, and first the turn of the first one (hint.go).
CREATE FUNCTION {schema}.ready(
	p_name text, p_kinds text[], now int8, come int8, low int8, since int8, ring int8, most int4,
	room int8, OUT number int4, OUT held bool,
	OUT limited bool, OUT resting bool, OUT early bool, OUT prompts bool, OUT suspects bool, OUT declined bool, OUT keyed bool,
	OUT asked bool, OUT ticks tid[], OUT ticked int8, OUT changed bool,
	OUT more bool, OUT clean bool, OUT next int8, OUT turns int4, OUT first int8
) LANGUAGE plpgsql AS $$
DECLARE
	q ALIAS FOR number;
	unusual bool;
	lined bool; -- it has lines with a name
	rests int8; -- when the first pause or rest of a partition ends
	until int8;
	promoted int4 := 0;
BEGIN
	SELECT q.queue, {schema}.paused(q.paused, q.paused_until, come), q.limited, q.paused_until,
		EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = ANY (ARRAY[{schema}.line(q.queue, {state.prompt}),
			{schema}.line(q.queue, {state.suspect}), {schema}.line(q.queue, {state.asked})])),
		EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = {schema}.line(q.queue, {state.waiting}) AND t.sort < low),
		EXISTS (SELECT FROM {schema}.lines k WHERE k.queue = q.queue),
		false, false, false, false, false, false, '{}', 0, false, false, come > 0, 0
	INTO number, held, limited, until, unusual, early, lined, resting, declined, keyed, prompts, suspects, asked, ticks,
		ticked, changed, more, clean, turns
	FROM {schema}.queues q WHERE q.name = p_name;
	next := {schema}.soonest(number, since);
	IF next <= come THEN
		SELECT p.promoted, p.turns INTO promoted, turns FROM {schema}.promote(number, now, come, most) p;
		IF room >= 0 THEN
			SELECT h.ticks, h.used INTO ticks, ticked FROM {schema}.hide(number, now, come, most, room) h;
		END IF;
		changed := promoted > 0 OR ticks <> '{}';
		early := early OR promoted > 0; -- promoted tasks may stand before low
		unusual := unusual OR promoted > 0;
		lined := lined OR turns > 0;
		next := {schema}.soonest(number, since);
		IF next <= come THEN
			clean := false;
			more := changed OR ticked > room;
			IF NOT more THEN -- another transaction has it locked for a while
				next := now + 100000;
			END IF;
		END IF;
	END IF;
	IF unusual THEN
		prompts := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = {schema}.line(number, {state.prompt}));
		suspects := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = {schema}.line(number, {state.suspect}));
		asked := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = {schema}.line(number, {state.asked}));
	END IF;
	IF lined THEN
		promoted := {schema}.resume(number, now, turns, come);
		turns := turns + promoted;
		declined := EXISTS (SELECT FROM {schema}.lines k WHERE k.queue = number AND k.state = {state.declined}
			AND (p_kinds = '{}' OR k.sub = ANY (p_kinds)) AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0));
		first := (SELECT k.turn FROM {schema}.lines k WHERE k.queue + 0 = number AND k.state = {state.keyed} AND k.sort = 0
			AND k.turn >= ring ORDER BY k.turn LIMIT 1);
		keyed := EXISTS (SELECT FROM {schema}.lines k WHERE k.queue + 0 = number AND k.state = {state.keyed} AND k.sort = 0
			AND k.turn >= first
			AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0));
		resting := {schema}.resting(number, come);
		rests := (SELECT k.sort FROM {schema}.lines k WHERE k.queue + 0 = number AND k.state = {state.keyed}
			AND k.sort > 0 AND k.sort < 9223372036854775807 ORDER BY k.sort LIMIT 1);
		IF rests <= come THEN
			more := more OR promoted > 0;
			rests := CASE WHEN promoted > 0 THEN rests ELSE now + 100000 END; -- another transaction has it locked
		END IF;
		next := least(next, rests);
	END IF;
	IF held AND until > 0 AND (next IS NULL OR until < next) AND (declined OR keyed OR EXISTS (
		SELECT FROM {schema}.tasks t WHERE t.line = ANY (ARRAY[{lines.waiting}])
	)) THEN
		next := until;
	END IF;
END $$;
