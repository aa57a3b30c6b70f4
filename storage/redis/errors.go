package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

// errReply is an answer that no script of this version gives.
var errReply = fmt.Errorf("%w: unexpected reply", storage.ErrUnknown)

// translate says what an error of go-redis means to a caller: every call of go-redis
// passes its error through it, once. It alone decides, by the code that begins an error
// of the server, never by the text behind it.
//
// What the server refused did not happen, nor did what was not sent. Everything else leaves
// open whether it did: a timeout, a lost connection, a node that is loading, failing over or
// busy.
func translate(err error, sent bool) error {
	if err == nil || errors.Is(err, storage.ErrUnknown) { // a call that goes on, given up by its caller
		return err
	}
	var refused goredis.Error
	if !errors.As(err, &refused) {
		if !sent {
			return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
		}
		return fmt.Errorf("%w: %w", storage.ErrUnknown, err)
	}
	code, _, _ := strings.Cut(refused.Error(), " ")
	switch strings.TrimPrefix(code, "-") { // Redis 6.2 says -OOM from within a script
	case "OOM":
		return fmt.Errorf("%w: %w", storage.ErrFull, err)
	case "NOAUTH", "WRONGPASS", "NOPERM", "MISCONF", "REFUSED":
		return fmt.Errorf("%w: %w", storage.ErrRefused, err)
	case "LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "MASTERDOWN", "BUSY",
		"NOREPLICAS", "UNKILLABLE", "NOSCRIPT":
		return fmt.Errorf("%w: %w", storage.ErrUnknown, err)
	case "ERR", "WRONGTYPE", "CROSSSLOT", "NOPROTO":
		if goredis.IsMaxClientsError(err) {
			return fmt.Errorf("%w: %w", storage.ErrUnknown, err)
		}
		return err
	}
	return fmt.Errorf("%w: %w", storage.ErrUnknown, err)
}

// translateRead is translate for a command that only reads: nothing happens by an earlier try.
func translateRead(err error) error {
	var dial *net.OpError
	return translate(err, !errors.As(err, &dial) || dial.Op != "dial")
}

// forgotten reports whether the server does not know a script by its hash.
func forgotten(err error) bool { return err != nil && goredis.HasErrorPrefix(err, "NOSCRIPT") }

// spoiled reports whether a script failed of itself: it met a key of another type, or what it
// cannot read in one. Nothing happened.
func spoiled(err error) bool {
	var refused goredis.Error
	return errors.As(err, &refused) && !away(err) &&
		!errors.Is(err, storage.ErrFull) && !errors.Is(err, storage.ErrRefused) && !errors.Is(err, goredis.Nil)
}

// away reports whether an error says that a server did not answer, or not in time.
func away(err error) bool {
	return errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable)
}

// wrap names the act in an error.
func wrap(act string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redis: %s: %w", act, err)
}

// ended is the error of a caller whose context ended while its call was under way.
func ended(ctx context.Context) error {
	return fmt.Errorf("%w: %w", storage.ErrUnknown, context.Cause(ctx))
}

// verdict gives what a script decided of a call's identity: "N" it happened now, "R"
// it had happened.
func verdict(letter byte) error {
	switch letter {
	case 'N', 'R':
		return nil
	case 'E':
		return storage.ErrLaneExpired
	}
	return fmt.Errorf("%w: older than the last call of its lane", storage.ErrUnknown)
}
