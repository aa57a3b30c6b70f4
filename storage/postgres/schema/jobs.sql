-- jobs is a view for people with psql, and only for them: no code depends on it. It shows all tasks
-- decoded. A column is null if it cannot be read.
--
-- It reads every task of the queues that are asked for, and decodes the selected columns: some 10 to
-- 50 microseconds a task. Name the queue, and do not repeat the query all the time: the statistics of the
-- storage return sizes at once.
--
-- run_at is null except for tasks that are scheduled or to be retried, and lease_until except for
-- tasks that run or are about to.
CREATE OR REPLACE VIEW {schema}.jobs (
	queue, id, kind, state, priority, run_at, retries, created_at, lease_until, last_error
) AS
SELECT q.name, {schema}.jobid(t.id), {schema}.jobkind(substr(t.record, 1, 200)), {schema}.jobstate(t.line),
	t.priority, CASE WHEN {schema}.state(t.line) IN ({states.due}) THEN {schema}.jobtime(t.sort) END,
	{schema}.jobretries(t.past), {schema}.jobcreated(t.past, t.version),
	CASE WHEN {schema}.state(t.line) IN ({states.pending}) THEN {schema}.jobtime(t.sort) END,
	(SELECT {schema}.joberror(s.attempts) FROM {schema}.sides s WHERE s.queue = t.queue AND s.id = t.id)
FROM {schema}.tasks t LEFT JOIN {schema}.queues q ON q.queue = t.queue
WHERE {schema}.state(t.line) <> {state.cursor} -- cursors are no tasks
UNION ALL
SELECT q.name, {schema}.jobid(e.id), {schema}.jobkind(substr(e.record, 1, 200)), {schema}.jobstate(e.line),
	e.priority, NULL, {schema}.jobretries(e.past), {schema}.jobcreated(e.past, e.version), NULL,
	(SELECT {schema}.joberror(s.attempts) FROM {schema}.sides s WHERE s.queue = e.queue AND s.id = e.id)
FROM {schema}.ended e LEFT JOIN {schema}.queues q ON q.queue = e.queue;
