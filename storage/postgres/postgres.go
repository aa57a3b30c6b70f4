package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/room"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// Storage keeps tasks in PostgreSQL. It is safe for concurrent use.
type Storage struct {
	pool    *pgxpool.Pool // for claims, inserts, reads and large calls
	reserve *pgxpool.Pool // for leases and settles
	schema  *schema
	name    string // the schema's name
	limits  storage.Limits
	numbers *numbers
	hints   *hints
	wake    *wake
	notes   *notes
	sweep   *sweep
	vacuum  vacuum
	odd     oddities // queues in which completions need the general way
	// overfull are the queues in which this storage has made tasks dead since they were last trimmed.
	overfull oddities
	room     room.Room

	combiner *combine.Combiner[*part]
	server   string // its version
	database string
	// identifier identifies the server's data directory; 0 if the role may not read it.
	identifier int64
	warnings   []string
	durable    string
	heldFor    time.Duration

	unnamed atomic.Bool  // use unnamed statements: prepared ones do not stay in a session
	brought atomic.Int64 // the number of tasks of the last claim
	// strict is true if a transaction here is READ COMMITTED only if it names that level. Steps rely on that
	// level: each of their statements sees all that was committed before it.
	strict bool
	// noShort makes claims and flushes go the general way, for tests.
	noShort bool

	allowance allowance // for the time that a claim may take
	idle      *idle
	// Slots of capacity 1. aside is filled while a background query has a connection. telling is
	// filled while a notification has another connection because it did not wait longer for aside.
	aside, telling chan struct{}

	background context.Context         //nolint:containedctx // of what no caller's context ends
	stop       context.CancelCauseFunc // ends background
	closed     atomic.Bool
}

var (
	_ storage.Storage = (*Storage)(nil)
	_ storage.Located = (*Storage)(nil)
)

// Open connects to PostgreSQL and checks the server and the schema: the server must have version 13
// or later and take writes, and the schema must serve this version, whichever others it serves.
// Its errors are *storage.InvalidError for a bad Config, *SchemaError for a schema that does not serve this
// version (see Migrate), storage.ErrRefused for a server that is not fit, and storage.ErrUnavailable for
// a server that cannot be reached. ctx bounds only the opening.
func Open(ctx context.Context, cfg Config) (*Storage, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("postgres: open: %w", err)
	}
	s := &Storage{
		schema: &schema{quoted: pgx.Identifier{cfg.Schema}.Sanitize()}, name: cfg.Schema,
		limits: cfg.Limits.WithDefaults(), heldFor: heldFor, noShort: !shortWays,
		numbers: newNumbers(), hints: &hints{known: make(map[string]*hint)},
		odd: oddities{until: make(map[string]time.Time)}, overfull: oddities{until: make(map[string]time.Time)},
		room: room.Room{Of: "PostgreSQL", Remedy: "free space on the server's disk"},
	}
	background, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	s.background, s.stop = background, stop
	err := s.connect(background, &cfg)
	if err == nil {
		err = s.examine(ctx, cfg.Schema)
	}
	if err == nil && cfg.ListenURL != "" {
		var lacks string
		if lacks, err = s.wake.examine(ctx, cfg.Schema); lacks != "" {
			s.warnings = append(s.warnings, "the listener: "+lacks)
		}
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("postgres: open: %w", err)
	}
	return s, nil
}

// connect makes the pools and helpers of the storage; it does not dial yet.
func (s *Storage) connect(background context.Context, cfg *Config) (err error) {
	if s.pool, s.reserve, err = cfg.connect(background, &s.unnamed); err != nil {
		return err
	}
	s.idle = &idle{pool: s.pool, ctx: background}
	s.aside, s.telling = make(chan struct{}, 1), make(chan struct{}, 1)
	listen, err := cfg.listen(s.pool)
	if err != nil {
		return err
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	channel, sender := "midge_"+cfg.Schema, hex.EncodeToString(id[:])
	s.wake = &wake{
		connect: listen, channel: channel, own: "midge_" + sender, sender: sender, ctx: background,
		late: s.late, name: s.numbers.name, deafFor: deafFor, passOn: s.passOn,
	}
	s.wake.events.Elsewhere = func(queue string) {
		if s.wake.claims.Load() == 0 { // else the Wait that follows the claim finds the event
			s.wake.reader.Go(func() { s.passOn(background, []string{queue}) })
		}
	}
	s.numbers.named = func(name string) { s.wake.events.Ring(wakeup.Alert, name) }
	s.notes = &notes{
		channel: channel, sender: sender, local: s.wake.caused, send: s.tell, ctx: background,
		quiet: make(map[int32]*pause),
	}
	s.sweep = &sweep{
		round: s.look, ctx: background,
		worn: s.vacuum.due, vacuum: s.vacuumWhileBusy, again: make(chan struct{}, 1),
	}
	s.combiner = s.newCombiner(cfg.Connections)
	return nil
}

// examine checks the server and the tables.
func (s *Storage) examine(ctx context.Context, name string) error {
	var number int
	var standby bool
	var fsync, commit, pages, isolation string
	err := s.ask(ctx, s.pool, query{
		text: `SELECT current_setting('server_version'), current_setting('server_version_num')::int,
			pg_is_in_recovery(), current_setting('fsync'), current_setting('synchronous_commit'),
			current_setting('full_page_writes'), current_setting('default_transaction_isolation'), current_database()`,
		scan: one(&s.server, &number, &standby, &fsync, &commit, &pages, &isolation, &s.database),
	})
	switch {
	case err != nil:
		return translate(err)
	case number < 130000:
		return fmt.Errorf("%w: PostgreSQL %s, want 13 or later", storage.ErrRefused, s.server)
	case standby:
		return fmt.Errorf("%w: a standby, which takes no writes", storage.ErrRefused)
	}
	s.strict = !strings.HasPrefix(isolation, "read ")
	var found installed
	err = s.retry(ctx, func() (err error) {
		found, err = installedIn(ctx, s.pool, name)
		return err
	})
	if err != nil {
		return translate(err)
	}
	if !found.current() {
		return found.refusal(name)
	}
	s.judge(fsync, commit, pages)
	if err := s.identify(ctx); err != nil {
		return err
	}
	return s.judgeLine(ctx)
}

// identify reads the identifier of the server's data. It was drawn when the data directory was made:
// standbys, and a standby that is promoted, have the same one. Every role may read it, unless an
// administrator has revoked that, or a provider of hosted servers has: providers refuse such
// functions in ways of their own. The storage works without it.
func (s *Storage) identify(ctx context.Context) error {
	err := s.ask(ctx, s.pool, query{
		text: "SELECT system_identifier FROM pg_control_system()", scan: one(&s.identifier),
	})
	switch class(code(err)) {
	case "0A", "42", "55", "XX": // not supported; no privilege or function; not in this state; internal error
		return nil
	}
	return translate(err)
}

// judgeLine warns of a connection whose traffic others can read, or to which another server can answer.
func (s *Storage) judgeLine(ctx context.Context) error {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return translate(err)
	}
	defer release(conn)
	if lacks := insecurity(conn.Conn().PgConn().Conn(), conn.Conn().Config().TLSConfig); lacks != "" {
		s.warnings = append(s.warnings, lacks)
	}
	return nil
}

// judge notes what an acknowledgement guarantees, and warns of settings that weaken it.
func (s *Storage) judge(fsync, commit, pages string) {
	s.durable = "an acknowledged task is on the server's disk, synchronous_commit=" + commit
	if fsync != "on" {
		s.durable = "none beyond the server's process: fsync is off"
		s.warnings = append(s.warnings, "fsync is off: a crash of the machine can destroy the database")
	}
	if pages != "on" {
		s.warnings = append(s.warnings, "full_page_writes is off: a crash of the machine can damage the database")
	}
	if commit == "off" {
		s.durable = "a crash of the server loses the last fraction of a second: synchronous_commit is off"
		s.warnings = append(s.warnings, "synchronous_commit is off: a crash of the server loses acknowledged tasks")
	}
}

// enter refuses a call of a closed storage.
func (s *Storage) enter() error {
	if s.closed.Load() {
		return storage.ErrClosed
	}
	return nil
}

// closeTime bounds how long Close waits for calls and background work.
const closeTime = time.Second

// Close ends every Wait and the background work, and closes the storage's own connections. Calls
// under way may fail with an ErrUnknown. It returns an error if they do not end within a second.
func (s *Storage) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	var marks sync.WaitGroup
	marks.Go(s.unmark) // has the context of the background work, which ends next
	marks.Wait()
	s.stop(storage.ErrClosed)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var all sync.WaitGroup
		if s.combiner != nil {
			all.Go(s.combiner.Close)
			all.Go(s.wake.close)
			all.Go(s.notes.close)
			all.Go(s.sweep.close)
			all.Go(s.idle.close)
		}
		all.Wait()
		if s.pool != nil {
			s.pool.Close()
			s.reserve.Close()
		}
	}()
	limit := time.NewTimer(closeTime)
	defer limit.Stop()
	select {
	case <-ended:
		return nil
	case <-limit.C:
		return errors.New("postgres: close: calls are still under way")
	}
}

// Location returns the names of the server, the database and the schema that hold the tasks. A
// server that was made from a copy of another server's files has the same identifier. If the role
// may not read the identifier, Location does not distinguish servers.
func (s *Storage) Location() string {
	place := fmt.Sprintf("postgres database %s, schema %s", s.database, s.name)
	if s.identifier != 0 {
		place += fmt.Sprintf(", server %d", s.identifier)
	}
	return place
}

// Describe returns the server's version and time, and warnings for an operator, such as a transaction
// that has been open for long.
func (s *Storage) Describe(ctx context.Context) (storage.Description, error) {
	var now, mark, jumped int64
	var held []string
	err := s.pooled().bounded(ctx, "describe", func(ctx context.Context) error {
		held = s.held(ctx)
		return s.ask(ctx, s.pool, query{
			text: `SELECT {schema}.told(), coalesce(pg_sequence_last_value('{schema}.mark'::regclass), 0),
				coalesce(nullif(pg_sequence_last_value('{schema}.jumped'::regclass), 1), 0)`,
			scan: one(&now, &mark, &jumped),
		})
	})
	if err != nil {
		return storage.Description{}, err
	}
	s.findRoom(ctx)
	d := storage.Description{
		Storage: "postgres " + s.server, Now: engine.Time(now), Durability: s.durable, Limits: s.limits,
		Warnings: slices.Concat(storage.ClockWarnings(engine.Time(now), engine.Time(mark),
			engine.Time(jumped)), held, s.wake.warnings(), s.warnings),
	}
	s.room.Tell(&d)
	return d, nil
}

// findRoom finds out, at most once a minute, whether the server has space for a small write, which it rolls
// back.
func (s *Storage) findRoom(ctx context.Context) {
	if !s.room.Due() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := s.ask(ctx, s.pool, query{text: tryingRoom})
	if unexpected(err) {
		s.room.Tried("")
		return
	}
	s.room.Wrote(translate(err))
}

// tryingRoom writes 16 KB that cannot be compressed, and ends with an error that rolls them back.
const tryingRoom = `DO $$ BEGIN
	INSERT INTO {schema}.sides (queue, id, result)
	SELECT 0, '', decode(string_agg(md5(random()::text || i), ''), 'hex') FROM generate_series(1, 1024) AS i;
	RAISE 'midge: there is room';
END $$`
