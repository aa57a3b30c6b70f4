package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

// errReply is the error for a reply that no script of this version returns.
var errReply = fmt.Errorf("%w: unexpected reply", storage.ErrUnknown)

// translate returns the error of the storage contract for an error of go-redis. Every call of
// go-redis passes its error through translate, once, and no other code classifies it. translate
// decides by the code that begins an error of the server, and by the text behind the code only if the
// server refuses a command (forbidden).
//
// A call that the server refused did not happen, nor did a call that was not sent. After any
// other error the call may have happened: a timeout, a lost connection, a node that is loading,
// failing over or busy.
func translate(err error, sent bool) error {
	if err == nil || errors.Is(err, storage.ErrUnknown) { // its caller left, and the call goes on
		return err
	}
	var refused goredis.Error
	if !errors.As(err, &refused) {
		if !sent {
			return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
		}
		return fmt.Errorf("%w: %w", storage.ErrUnknown, err)
	}
	if forbidden(err) {
		return fmt.Errorf("%w: %w", storage.ErrRefused, err)
	}
	code, _, _ := strings.Cut(refused.Error(), " ")
	switch strings.TrimPrefix(code, "-") { // Redis 6.2 writes -OOM within a script
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

// translateRead is translate for a command that only reads, whose earlier tries change nothing: only an
// error of dialing counts as not sent.
func translateRead(err error) error {
	var dial *net.OpError
	return translate(err, !errors.As(err, &dial) || dial.Op != "dial")
}

// forgotten reports whether an error means that the server does not know a script by its hash.
func forgotten(err error) bool { return err != nil && goredis.HasErrorPrefix(err, "NOSCRIPT") }

// spoiled reports whether a script failed because of the data: it met a key of a wrong type, or a
// value that it cannot read. It changed nothing.
func spoiled(err error) bool {
	var refused goredis.Error
	return errors.As(err, &refused) && !away(err) &&
		!errors.Is(err, storage.ErrFull) && !errors.Is(err, storage.ErrRefused) && !errors.Is(err, goredis.Nil)
}

// away reports whether an error means that the server did not answer, or not in time.
func away(err error) bool {
	return errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable)
}

// severed reports whether an error means that a connection ended before the server's reply.
func severed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// wrap adds the action to an error. It returns nil for nil.
func wrap(action string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redis: %s: %w", action, err)
}

// ended returns the error for a caller whose context ended while its call was under way.
func ended(ctx context.Context) error {
	return fmt.Errorf("%w: %w", storage.ErrUnknown, context.Cause(ctx))
}

// verdict translates the decision of a script by a call's identity (admit in commit.lua). It returns
// nil for 'N', the call happened now, and for 'R', it had happened before; storage.ErrLaneExpired
// for 'E', errDivided for 'D', and an ErrUnknown for a call older than the last call of its lane.
func verdict(letter byte) error {
	switch letter {
	case 'N', 'R':
		return nil
	case 'E':
		return storage.ErrLaneExpired
	case 'D':
		return errDivided
	}
	return fmt.Errorf("%w: older than the last call of its lane", storage.ErrUnknown)
}
