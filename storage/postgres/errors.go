package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/record"
)

// errUnsent means that there was no connection for a step: nothing of the step was sent.
var errUnsent = errors.New("no connection")

// errReply means that no step of this version returns such an answer.
var errReply = fmt.Errorf("%w: unexpected reply", storage.ErrUnknown)

// translate returns the error of the storage contract for an error of pgx: every error of pgx passes
// through it, once. It decides by the SQLSTATE, never by the text.
//
// A step that the server refused, or that was not sent, did not happen. Every other error leaves open
// whether the step happened: a timeout, a lost connection, a server that is going down.
func translate(err error) error {
	if err == nil || translated(err) {
		return err
	}
	unknown := storage.ErrUnknown
	if errors.Is(err, errUnsent) || pgconn.SafeToRetry(err) {
		unknown = storage.ErrUnavailable
	}
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return fmt.Errorf("%w: %w", unknown, err)
	}
	if refused.Code == "42883" { // no such function
		return fmt.Errorf("%w: the schema serves version %d no longer, update the client: %w",
			storage.ErrRefused, version, err)
	}
	switch class(refused.Code) {
	case "53": // insufficient resources
		if refused.Code == "53300" { // too many connections: others will end
			return fmt.Errorf("%w: %w", unknown, err)
		}
		return fmt.Errorf("%w: %w", storage.ErrFull, err)
	case "28", "3D", "42": // bad credentials; no such database; no such table or privilege
		return fmt.Errorf("%w: %w", storage.ErrRefused, err)
	case "08", "57", "58", "40", "25", "55":
		return fmt.Errorf("%w: %w", unknown, err)
	}
	return err
}

// translated reports whether an error already is one of the storage contract.
func translated(err error) bool {
	return away(err) || errors.Is(err, storage.ErrClosed) || errors.Is(err, storage.ErrTransactionOver) ||
		errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrNotEmpty) ||
		errors.Is(err, storage.ErrDamaged) || errors.Is(err, record.ErrNewer)
}

// away reports whether an error means that the server did not answer.
func away(err error) bool {
	return errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable)
}

func class(code string) string {
	if len(code) < 2 {
		return ""
	}
	return code[:2]
}

// code returns the SQLSTATE of an error of the server, "" for any other.
func code(err error) string {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refused.Code
	}
	return ""
}

// transient reports whether a step that the server refused may succeed if it is repeated: it lost a
// race (serialization, deadlock, lock wait, unique), or its plan or prepared statement was outdated.
// The step did not happen.
func transient(err error) bool {
	switch code(err) {
	case "40001", "40P01", "55P03", "23505", "0A000", "26000", "42P05":
		return true
	}
	return errors.Is(err, errHeld)
}

// unexpected reports whether a function of the database stopped and was rolled back because something
// did not go as expected. The general way (step.go) finds the cause.
func unexpected(err error) bool { return code(err) == "P0001" }

// readOnly reports whether the server takes no writes: it is, or has become, a standby.
func readOnly(err error) bool { return code(err) == "25006" }

// unprepared reports whether a prepared statement is missing, or is there already: something between
// this client and the server shares sessions among clients.
func unprepared(err error) bool {
	switch code(err) {
	case "26000", "42P05":
		return true
	}
	return false
}

// forgetPrepared makes all connections do without prepared statements from now on.
func (s *Storage) forgetPrepared() {
	s.unnamed.Store(true)
	s.pool.Reset()
	s.reserve.Reset()
}

// again is how often a step that loses races is tried.
const again = 10

// retry does a step until it succeeds or fails for good. If a try was sent and a later one cannot
// be, it returns an ErrUnknown.
func (s *Storage) retry(ctx context.Context, step func() error) error {
	pause := time.Millisecond
	for try := 1; ; try++ {
		err := step()
		switch {
		case errors.Is(err, errUnsent) && try > 1:
			return fmt.Errorf("%w: %w", storage.ErrUnknown, err)
		case err == nil:
			return nil
		case unprepared(err):
			s.forgetPrepared()
		case readOnly(err):
			s.pool.Reset()
			s.reserve.Reset()
		case !transient(err):
			return err
		}
		if try == again || !sleep.For(ctx, pause/2+rand.N(pause)) {
			return err
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// wrap names the action in an error.
func wrap(action string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("postgres: %s: %w", action, err)
}
