package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// wake hears the wake-ups of queues: those that this storage caused, at once, and those of other
// processes, through the listener. The first Claim or Wait starts the listener. It listens to the
// channel of the schema, on which all processes hear news, and work of queues in which no process is
// marked as idle; and to the channel of this process, for work of queues in which it was marked.
type wake struct {
	connect func(ctx context.Context) (*pgx.Conn, error) // nil without a listener
	channel string
	own     string               // the channel of this storage alone
	sender  string               // the first word of this storage's own notifications
	late    func(queues []int32) // called for the queues of commits that took long
	name    func(queue int32) string
	deafFor time.Duration   // how long the listener may be away before the operator is warned
	ctx     context.Context //nolint:containedctx // of the listener; ended by Close

	events wakeup.Stream
	idling idling
	claims atomic.Int64 // under way
	passOn func(ctx context.Context, queues []string)

	mu      sync.Mutex // guards the fields below; no I/O under it
	closed  bool
	started bool

	reader sync.WaitGroup // the listener and what it passes on; they end with ctx
}

// start begins to listen, once.
func (w *wake) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started || w.closed || w.connect == nil {
		return
	}
	w.started = true
	w.events.Silent(nil)
	w.reader.Go(w.listen)
}

// deafFor is the default of wake.deafFor.
const deafFor = 10 * time.Second

// examine checks, when the storage is opened, that the listener will find the schema of all other
// connections, and returns the defect of the listener's connection. A server that cannot be reached is no
// error: it may be reached later.
func (w *wake) examine(ctx context.Context, schema string) (lacks string, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := w.connect(ctx)
	if err != nil {
		return "", refusal(err)
	}
	defer hangUp(ctx, conn)
	lacks = insecurity(conn.PgConn().Conn(), conn.Config().TLSConfig)
	var database string
	var same bool
	const question = "SELECT current_database(), EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)"
	err = conn.QueryRow(ctx, question, pgx.QueryExecModeSimpleProtocol, schema).Scan(&database, &same)
	if err == nil && !same {
		err = fmt.Errorf("%w: database %s has no schema %s, want that of Config.URL",
			storage.ErrRefused, database, schema)
	}
	return lacks, refusal(err)
}

// refusal returns an error only if trying again would not help, else nil.
func refusal(err error) error {
	if err = translate(err); !errors.Is(err, storage.ErrRefused) {
		return nil
	}
	return fmt.Errorf("the listener of Config.ListenURL: %w", err)
}

// warnings warns of a listener that has been away for long.
func (w *wake) warnings() []string {
	since, reason := w.events.Silence()
	if since.IsZero() || time.Since(since) < w.deafFor {
		return nil
	}
	why := "it has not answered yet"
	if reason != nil {
		why = reason.Error()
	}
	return []string{fmt.Sprintf("no listener since %s (%s): what others enqueue is found up to a second late",
		since.UTC().Format(time.RFC3339), why)}
}

// looking notes that a claim begins, and returns the number of the last event.
func (w *wake) looking(req *storage.ClaimRequest) storage.Since {
	w.start()
	return w.events.Looking(req)
}

// listen hears notifications until ctx ends, on one connection after the other.
func (w *wake) listen() {
	pause := 10 * time.Millisecond
	for w.ctx.Err() == nil {
		begun := time.Now()
		w.events.Silent(w.hear()) // a lost connection is made anew
		if time.Since(begun) > time.Second {
			pause = 10 * time.Millisecond
		}
		if !sleep.For(w.ctx, pause) {
			return
		}
		pause = min(2*pause, time.Second)
	}
}

// checkEvery is how long the listener's connection may be silent before it is tested.
const checkEvery = 5 * time.Second

// hear listens on one connection until it is lost.
func (w *wake) hear() error {
	conn, err := w.connect(w.ctx)
	if err != nil {
		return err
	}
	defer func() { hangUp(w.ctx, conn) }()
	ctx, cancel := context.WithTimeout(w.ctx, checkEvery)
	defer cancel()
	if _, err := conn.Exec(ctx, w.listening()); err != nil {
		return err
	}
	w.idling.clear()
	w.events.Heard()
	for {
		ctx, cancel := context.WithTimeout(w.ctx, checkEvery)
		note, err := conn.WaitForNotification(ctx)
		cancel()
		switch {
		case err == nil:
			w.note(note.Channel, note.Payload)
		case w.ctx.Err() != nil || conn.IsClosed():
			return err
		default:
			if err := w.check(conn); err != nil {
				return err
			}
		}
	}
}

// check asks a silent server whether it still answers and takes writes: after a failover nobody
// notifies on a server that takes none.
func (w *wake) check(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(w.ctx, checkEvery)
	defer cancel()
	const question = "SHOW transaction_read_only"
	var answer string
	err := conn.QueryRow(ctx, question, pgx.QueryExecModeSimpleProtocol).Scan(&answer)
	if err == nil && answer != "off" {
		err = fmt.Errorf("%s: %s", question, answer)
	}
	return err
}

// listening returns the statement that begins to listen.
func (w *wake) listening() string {
	return "LISTEN " + pgx.Identifier{w.channel}.Sanitize() + "; LISTEN " + pgx.Identifier{w.own}.Sanitize()
}

// note handles a notification: sender, kind and the numbers of queues.
func (w *wake) note(channel, payload string) {
	parts := strings.Split(payload, " ")
	if len(parts) != 3 {
		return
	}
	var queues []int32
	for text := range strings.SplitSeq(parts[2], ",") {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			queues = append(queues, int32(n))
		}
	}
	own := parts[0] == w.sender
	if channel == w.own {
		for _, q := range queues {
			w.idling.drop(w.name(q))
			if own { // a step of this storage took the mark, and notified nobody else
				w.events.Alone(w.name(q))
			}
		}
	}
	if own { // its own were heard already
		return
	}
	if parts[1] == "l" || parts[0] == senderJoined {
		w.late(queues)
	}
	event := wakeup.Work // after a late commit, too: one claim that reads everything finds its tasks
	if at := slices.Index(letters[:], parts[1]); at >= 0 {
		event = wakeup.Event(at)
	}
	if event == wakeup.Work && channel != w.own {
		event = wakeup.Shared
	}
	w.ring(queues, event)
}

// unnamed stands for every queue whose number this storage has heard, but not its name. No queue has
// this name.
const unnamed = ""

// heard reports whether the listener listens.
func (w *wake) heard() bool {
	since, _ := w.events.Silence()
	return w.connect != nil && since.IsZero()
}

// caused adds an event that this storage has caused. The step that did so wakes other processes.
func (w *wake) caused(queues []int32, event wakeup.Event) {
	if event == wakeup.Work {
		event = wakeup.Shared
	}
	w.ring(queues, event)
}

// ring adds an event of queues to the stream.
func (w *wake) ring(queues []int32, event wakeup.Event) {
	if len(queues) == 0 {
		return
	}
	names := make([]string, len(queues))
	for i, q := range queues {
		names[i] = w.name(q)
		if names[i] == unnamed { // whoever waits for it may wait for another queue
			event = max(event, wakeup.News)
		}
	}
	w.events.Ring(event, names...)
}

// pass wakes other processes for work of queues, in place of this one.
func (w *wake) pass(queues []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.reader.Go(func() { w.passOn(w.ctx, queues) })
	}
}

// close ends every Wait and waits for the listener, whose context has ended.
func (w *wake) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.events.Close()
	w.reader.Wait()
}

// Wait returns when one of the queues has had an event since the Claim that returned req.Since. It costs
// the server nothing. An event of a queue whose name is not known counts for every queue whose number
// is not known.
func (s *Storage) Wait(ctx context.Context, req storage.WaitRequest) error {
	if err := storage.CheckWait(&req); err != nil {
		return err
	}
	s.wake.start()
	if !s.numbers.knows(req.Names()) {
		req.Queues = append(slices.Clone(req.Queues), unnamed)
	}
	if err := s.wake.events.Wait(ctx, req); err != nil {
		return fmt.Errorf("postgres: wait: %w", err)
	}
	return nil
}
