package bulk

import (
	"time"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// What a task has that a person adds and says nothing else of.
const (
	DefaultRetries    = 20
	DefaultCrashLimit = 3
)

// Add is a task that a person adds.
type Add struct {
	storage.Ref

	Kind string
	// Params are JSON, which is stored in Encoding.
	Params   []byte
	Encoding string
	Priority int
	// In is after which time it runs, and At is at which moment: one of them at most.
	In                  time.Duration
	At                  time.Time
	Retries, CrashLimit int
	// Timeout bounds an attempt, and Keep is for how long the task is kept once it is completed: 0 for what
	// the storage does.
	Timeout, Keep time.Duration
	// Unique has no second task of the kind with this key enqueued while the first lives, or for UniqueFor
	// where that is not 0.
	Unique    string
	UniqueFor time.Duration
	Headers   map[string]string
}

// Insert returns what a storage takes. Names of midge's own queues and parameters that are no JSON give a
// *[storage.InvalidError]; all else is for [storage.CheckInsert].
func (a *Add) Insert() (storage.Insert, error) {
	if storage.Reserved(a.Queue) {
		return storage.Insert{}, storage.Invalid("queue name", a.Queue, "one that does not begin with %q",
			storage.ReservedQueues)
	}
	encoded, err := payload.Encode(a.Encoding, a.Params, nil)
	if err != nil {
		return storage.Insert{}, err
	}
	in := storage.Insert{
		Ref: a.Ref, Kind: a.Kind, Encoding: a.Encoding, Payload: encoded, Priority: a.Priority, Delay: a.In,
		At: a.At, MaxRetries: a.Retries, CrashLimit: a.CrashLimit, Timeout: a.Timeout,
		Keep: storage.Keep{For: a.Keep}, Headers: a.Headers,
	}
	if a.Unique == "" {
		return in, nil
	}
	in.Unique = storage.Unique{Mode: storage.UniqueLife, For: a.UniqueFor}
	if a.UniqueFor > 0 {
		in.Unique.Mode = storage.UniqueWindow
	}
	// As the client makes the key of Unique{Key: …}.
	in.Unique.Key = storage.UniqueKey([]byte(a.Kind), []byte(in.Unique.Mode), []byte("key"), []byte(a.Unique))
	in.OnConflict = storage.Skip
	return in, nil
}
