-- The tables of a storage. {schema} stands for the schema's quoted name.
--
-- A migration after this one only adds to the tables, because clients of the version before go on
-- with their own functions beside it (version.go). Further properties of a task stand in its record
-- (record.go), which those clients write back as they found it. A column that they do not know is
-- lost if they move the task to another table or queue.
--
-- Times are microseconds since the Unix epoch. Moments are those of the server's clock. Versions, and
-- the places of waiting tasks, come from the mark, which only grows.

-- The migrations of the tables that were applied.
CREATE TABLE {schema}.migrations (
	version int4 PRIMARY KEY,
	applied timestamptz NOT NULL DEFAULT now()
);

-- The versions whose functions the schema holds, each for the clients of its version: the function
-- claim of version 1 is claim_1. oldest is the oldest version whose functions work correctly on the
-- tables of this version.
CREATE TABLE {schema}.functions (
	version int4 PRIMARY KEY,
	oldest  int4 NOT NULL,
	names   text[] NOT NULL,
	applied timestamptz NOT NULL DEFAULT now()
);

-- The mark; see stamp(). A sequence belongs to no transaction: it serialises nobody and no
-- rollback takes it back.
CREATE SEQUENCE {schema}.mark;

-- When a wait began because the clock had jumped ahead; 1 once it is over. See come().
CREATE SEQUENCE {schema}.jumped;

-- The clock of the last steps, to a minute, while the mark comes from a clock that was ahead and is
-- right again; 1 if the mark has it. See come().
CREATE SEQUENCE {schema}.clock;

-- One row per queue: its number, its settings, its folded counters. A hidden row stands for no queue:
-- one that is not used yet, was removed, or was abandoned.
CREATE TABLE {schema}.queues (
	queue        int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name         text COLLATE "C" NOT NULL UNIQUE,
	hidden       bool NOT NULL DEFAULT true,
	paused       bool NOT NULL DEFAULT false,
	paused_until int8 NOT NULL DEFAULT 0, -- 0: until it is resumed
	limited      bool NOT NULL DEFAULT false, -- it has a limit, in the table limits
	touched      int8 NOT NULL DEFAULT 0, -- when something was last folded into it
	-- The number of tasks in each state, at the index of the state (see tasks), and from index 16 on
	-- the totals: enqueued, requeued, completed, dead, cancelled, deleted, failed, crashed,
	-- evicted.
	counters     int8[] NOT NULL DEFAULT array_fill(0::int8, ARRAY[{counters}])
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0.2);

-- The limits of queues, and the turns of queues with partitions, apart from the rows of queues, which fold
-- writes. A step that may start tasks of such a queue locks its row first. operator and declared: '' for
-- none. starts: the starts that count for the rate. The engine writes all three (Limit.Texts in
-- storage/internal/engine). turn: that of the tasks without a partition, among those of the partitions.
CREATE TABLE {schema}.limits (
	queue    int4  PRIMARY KEY,
	operator text  NOT NULL,
	declared text  NOT NULL,
	starts   bytea NOT NULL,
	turn     int8  NOT NULL DEFAULT 0
) WITH (
	fillfactor = 40, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.2,
	autovacuum_vacuum_cost_delay = 0
);

-- Changes of the counters of queues, and of the number of tasks in the lines with a name. Steps append
-- rows, so that none waits for another; the sweep folds the rows into queues and lines and deletes
-- them.
CREATE TABLE {schema}.deltas (
	queue   int8 NOT NULL, -- or the number of a line with a name
	counter int2 NOT NULL, -- the index of the counter
	n       int4 NOT NULL
) WITH (
	autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0
);

-- The lines with a name, in which some tasks of a queue and a state stand apart: declined tasks in the
-- line of their kind, and waiting tasks with a partition in the line of their partition. The row of a kind
-- may outlive the tasks of its line by a day. The row of a partition goes with the last task, unless the
-- partition is paused or rests, has a limit of its own, or tasks of it run or starts of it count. The number
-- of a line is below 0, and is never used again.
--
-- sort and turn are the place of a partition in the ring of its queue. Ready partitions have the sort 0,
-- and stand by their turns. The sort of any other partition is the moment from which it may be ready, or the
-- highest number: see arrange().
--
-- The partition with the name '' stands for the tasks without a partition while they rest. It never has
-- a task.
CREATE SEQUENCE {schema}.linenumbers;
CREATE TABLE {schema}.lines (
	queue int4 NOT NULL,
	state int2 NOT NULL,
	sub   text COLLATE "C" NOT NULL, -- the name: a kind or the key of a partition
	line  int8 NOT NULL,
	-- When a claim last named the kind, or the line began. Of a partition that waits without tasks for a
	-- moment: that moment, before which the sweep need not read it.
	named int8 NOT NULL,
	look  int8 NOT NULL, -- when to search for declined tasks that waited too long
	sort  int8 NOT NULL DEFAULT 0,
	turn  int8 NOT NULL DEFAULT 0,
	tasks int8 NOT NULL DEFAULT 0, -- without the deltas
	-- How many tasks are left of the turn of a partition that claims have begun and not ended, 0 for none.
	turn_left int4 NOT NULL DEFAULT 0,
	-- When the pause of a partition ends, the highest number if a resume ends it, and when the rest ends
	-- that a throttled task began; 0 for none.
	paused int8 NOT NULL DEFAULT 0,
	rest   int8 NOT NULL DEFAULT 0,
	starts bytea NOT NULL DEFAULT '', -- the starts that count for the rate of a partition, as in limits
	own    text NOT NULL DEFAULT '', -- the limit of this partition alone, as in limits; '' for none
	PRIMARY KEY (queue, state, sub)
) WITH (
	fillfactor = 50, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.1,
	autovacuum_vacuum_cost_delay = 0
);
CREATE UNIQUE INDEX lines_number ON {schema}.lines (line);
-- The expression keeps the index from doing the work of the key, and the key from doing its work.
CREATE INDEX lines_ring ON {schema}.lines ((queue + 0), sort, turn) WHERE state = {state.keyed};
CREATE INDEX lines_own ON {schema}.lines ((queue + 0)) WHERE state = {state.keyed} AND own <> '';
CREATE INDEX lines_empty ON {schema}.lines (state, named) WHERE tasks <= 0;
CREATE INDEX lines_astray ON {schema}.lines (line)
	WHERE state = {state.keyed} AND sort = 9223372036854775807 AND paused = 0 AND tasks > 0;

-- Every task that has not ended, and the cursors. No column is ever null, so that a
-- row has no null bitmap.
--
-- line:  the number of the line in which it stands: 16 times its queue, plus its state
--        (internal/states), or the number of a line with a name (lines), whose last four bits are
--        its state too. Queue and state share a column, so that no plan can use one index for
--        the other's work
-- sort:  its place in that line. Waiting, declined, of a partition: by priority, then turn.
--        Pending: when the lease expires. Scheduled, retry: when it is due.
--        Cursor: when it is handed out next
-- turn:  its place among tasks of the same sort: the mark when it was last scheduled. Declined:
--        since when. Pending: when it was claimed
-- flags: 1 its end needs more than a delete, 2 started, 4 only to start at once,
--        8 a suspect, 16 has a row in sides, 32 counts for the concurrency of its partition while it
--        is pending. All other flags belong to newer versions: a client passes over a task with a flag
--        that it does not know
-- lease: token and runner while it is pending, else empty
-- past:  when it was created, its outcomes and their reasons. Empty until its first claim or
--        change: it was created at its version then, and has gone through nothing
-- record: kind, encoding, limits, headers and payload (record.go)
-- partition: the key of its partition, which the record has too, '' for none. If the task waits, its
--        line has that name: so promotions need no record
CREATE TABLE {schema}.tasks (
	sort     int8  NOT NULL,
	turn     int8  NOT NULL,
	version  int8  NOT NULL,
	line     int8  NOT NULL,
	queue    int4  NOT NULL,
	flags    int2  NOT NULL,
	priority int2  NOT NULL,
	id       bytea NOT NULL, -- names.go
	lease    bytea NOT NULL,
	past     bytea NOT NULL,
	record   bytea NOT NULL,
	partition text COLLATE "C" NOT NULL DEFAULT '',
	PRIMARY KEY (queue, id)
) WITH (
	autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.05,
	autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 10000,
	autovacuum_vacuum_cost_delay = 0
);
-- A record is small or goes to TOAST whole. Whether to compress it is the application's choice.
ALTER TABLE {schema}.tasks ALTER record SET STORAGE EXTERNAL;
-- One order for all states: claims, promotions, recoveries, listings.
CREATE INDEX tasks_order ON {schema}.tasks (line, sort, turn);
-- The tasks that count for the concurrency of their partitions. The expression keeps this index and the
-- key from doing each other's work.
CREATE INDEX tasks_counted ON {schema}.tasks ((queue + 0), partition) WHERE flags & 32 > 0;

-- Tasks that have ended and are kept.
CREATE TABLE {schema}.ended (
	expires  int8  NOT NULL,
	version  int8  NOT NULL,
	at       int8  NOT NULL, -- when it ended
	line     int8  NOT NULL,
	queue    int4  NOT NULL,
	flags    int2  NOT NULL,
	priority int2  NOT NULL,
	id       bytea NOT NULL,
	past     bytea NOT NULL,
	record   bytea NOT NULL,
	PRIMARY KEY (queue, id)
);
ALTER TABLE {schema}.ended ALTER record SET STORAGE EXTERNAL;
CREATE INDEX ended_order ON {schema}.ended (line, expires);

-- Parts that few tasks have, apart from the rows that claims read.
CREATE TABLE {schema}.sides (
	queue      int4  NOT NULL,
	id         bytea NOT NULL,
	attempts   bytea, -- JSON
	stack      bytea,
	result     bytea,
	progress   bytea,
	checkpoint bytea,
	PRIMARY KEY (queue, id)
);

-- The unique keys that are held: for a task's life (until = 0), or until a moment.
CREATE TABLE {schema}.keys (
	queue int4  NOT NULL,
	key   text  COLLATE "C" NOT NULL,
	id    bytea NOT NULL,
	until int8  NOT NULL,
	PRIMARY KEY (queue, key)
);
-- The expression keeps each of the two indexes from doing the other's work.
CREATE INDEX keys_until ON {schema}.keys ((queue + 0), until) WHERE until > 0;

-- The last call of each lane. verb: 'a' an Apply that went as expected, with versions from base on;
-- 'o' an Apply whose outcome is kept; 'c' a Claim, 'e' an Extend, 's' a Configure.
CREATE TABLE {schema}.lanes (
	lane    bytea  PRIMARY KEY,
	opened  int8   NOT NULL,
	seq     int8   NOT NULL,
	base    int8   NOT NULL,
	verb    "char" NOT NULL,
	outcome bytea  NOT NULL DEFAULT ''
) WITH (
	fillfactor = 40, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.2,
	autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX lanes_opened ON {schema}.lanes (opened);

-- The processes that wait for work, by queue. A claim that leaves nothing marks its process, and a step that makes
-- work takes a mark and notifies that process alone (rouse). A mark is a hint, and counts for some seconds.
CREATE UNLOGGED TABLE {schema}.idle (
	queue   int4 NOT NULL,
	process text COLLATE "C" NOT NULL,
	at      int8 NOT NULL -- when it was marked
);
CREATE INDEX idle_queue ON {schema}.idle (queue, at);

-- The heartbeats of runners. A heartbeat that leaves out its schedules or vitals does not write them.
CREATE TABLE {schema}.runners (
	id        text COLLATE "C" PRIMARY KEY,
	seen      int8 NOT NULL,
	until     int8 NOT NULL,
	info      bytea NOT NULL, -- JSON
	schedules bytea,          -- JSON
	vitals    bytea
) WITH (fillfactor = 50);
