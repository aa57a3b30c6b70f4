package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

// A name belongs to the program that declares the schedule, or to nobody: then the schedule is kept. These
// errors are the reasons why a name is refused.
var (
	// ErrDeclared is returned by Set if the name belongs to a program.
	ErrDeclared = errors.New("a program has declared the schedule: " +
		"take it out of the program, and remove it, before another one is kept under its name")
	// ErrDamaged is returned by Set if it is not known to whom the name belongs.
	ErrDamaged = errors.New("the declaration of the schedule cannot be read: remove it first")
	// ErrKept is the trouble of a program that declares a schedule under the name of a kept one.
	ErrKept = errors.New("it is kept in the storage, and a program declares it too. Only the kept one ticks: " +
		"take it out of the program, or remove it")
)

// setTries is how often Set begins anew if a tick, or another call, has changed the cursor meanwhile.
const setTries = 10

// Set keeps the schedule of an insert, whose declaration is a kept one, in the storage. A kept schedule of the
// name is replaced; see [After]. If the same schedule is kept already, and nobody has edited its cursor, Set
// writes nothing. It returns ErrDeclared or ErrDamaged if the name is taken.
func Set(ctx context.Context, session *storage.Session, in storage.Insert) error {
	d, err := in.Cursor.Decode()
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		tx, err := setting(ctx, session, in, d)
		if err != nil || tx.Ops() == 0 {
			return err
		}
		_, err = session.ApplyOne(ctx, tx)
		var dep *storage.DependencyError
		if errors.As(err, &dep) && try < setTries {
			continue
		}
		return err
	}
}

// setting returns the Tx by which Set keeps a schedule, without an operation if it is kept already.
func setting(
	ctx context.Context, session *storage.Session, in storage.Insert, d storage.Declaration,
) (tx storage.Tx, err error) {
	stored, err := session.Storage().Task(ctx, in.Ref)
	switch {
	case err == nil:
		old, damaged := stored.Cursor.Decode()
		switch {
		case damaged != nil:
			return tx, ErrDamaged
		case !old.Kept:
			return tx, ErrDeclared
		case old.Hash == d.Hash && ofTicks(stored.TickInsert("", &old), old) == ofTicks(in, d):
			return tx, nil
		}
		tx.Deletes = []storage.Delete{{Ref: stored.Ref, Version: stored.Version}}
	case !errors.Is(err, storage.ErrNotFound):
		return tx, err
	}
	now, err := storageNow(ctx, session)
	if err != nil {
		return tx, err
	}
	in.Cursor, err = After(in.Ref, stored.Cursor, d, now)
	tx.Inserts = []storage.Insert{in}
	return tx, err
}

// ofTicks hashes the declaration of a schedule with durations as storages keep them, in whole microseconds.
// Whoever edits a cursor leaves the hash in its declaration as it was.
func ofTicks(in storage.Insert, d storage.Declaration) string {
	in.Timeout, in.Keep.For = in.Timeout.Truncate(time.Microsecond), in.Keep.For.Truncate(time.Microsecond)
	return Hash(&in, &d)
}

// storageNow asks the storage for its time. The time that a session reckons lags behind if the machine was
// suspended, and a schedule must not tick for a moment before it was set.
func storageNow(ctx context.Context, session *storage.Session) (time.Time, error) {
	d, err := session.Storage().Describe(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the time: %w", err)
	}
	return d.Now, nil
}

// errSame ends a change that would change nothing.
var errSame = errors.New("nothing to change")

// Pause stops the ticks of a schedule until it is resumed, or lets it tick again from the first tick after now
// on. Once a pause has returned nil, no tick is made any more: a tick that is under way finds another version of
// the cursor. Pause returns [storage.ErrNotFound] if there is no such schedule.
func Pause(ctx context.Context, session *storage.Session, cursor storage.Ref, paused bool) error {
	err := session.ChangeTask(ctx, cursor, func(t storage.Task) (storage.Change, error) {
		d, err := t.Cursor.Decode()
		if err != nil {
			return storage.Change{}, err
		}
		if d.Paused == paused {
			return storage.Change{}, errSame
		}
		moved := &storage.Cursor{Last: t.Cursor.Last}
		if !paused {
			s, err := Of(t.Ref, &d)
			if err != nil {
				return storage.Change{}, err
			}
			now, err := storageNow(ctx, session)
			if err != nil {
				return storage.Change{}, err
			}
			moved.Next = s.Next(later(now, moved.Last))
		}
		moved.Declaration, err = withPaused(t.Cursor.Declaration, paused)
		return storage.Change{Cursor: moved}, err
	})
	if errors.Is(err, errSame) {
		return nil
	}
	return err
}

// withPaused returns a declaration that is paused, or not. It leaves the members alone that this version does not
// know.
func withPaused(declaration string, paused bool) (string, error) {
	members := make(map[string]json.RawMessage)
	if err := json.Unmarshal([]byte(declaration), &members); err != nil {
		return "", err
	}
	if delete(members, "paused"); paused {
		members["paused"] = json.RawMessage("true")
	}
	text, err := json.Marshal(members)
	return string(text), err
}
