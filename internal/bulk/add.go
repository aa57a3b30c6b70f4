package bulk

import (
	"time"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// The properties of an added task that a person does not choose.
const (
	DefaultRetries    = 20
	DefaultCrashLimit = 3
)

// Add is a task that a person adds.
type Add struct {
	storage.Ref

	Kind string
	// Params are the parameters as JSON. They are stored in Encoding.
	Params   []byte
	Encoding string
	Priority int
	// Partition is the key of the task's partition, "" for none.
	Partition string
	// Cost is how much of the rate of its queue the start of the task uses up.
	Cost storage.Cost
	// In is the delay of the task, and At the moment at which it is due. At most one of them is set.
	In                  time.Duration
	At                  time.Time
	Retries, CrashLimit int
	// Timeout bounds an attempt: 0 leaves it to the runner, and storage.NoTimeout is no bound. Keep is how
	// long the task is kept after it completed or was cancelled: see [storage.Keep] for 0.
	Timeout, Keep time.Duration
	// Unique is a key. While the task lives, or for UniqueFor if that is not 0, no second task of its kind can
	// be enqueued with the same key.
	Unique    string
	UniqueFor time.Duration
	Headers   map[string]string
}

// Insert returns the insert of the task. It returns a *[storage.InvalidError] for a queue of midge's own and
// for parameters that are not JSON. [storage.CheckInsert] checks everything else.
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
		Ref: a.Ref, Kind: a.Kind, Encoding: a.Encoding, Payload: encoded, Priority: a.Priority,
		Partition: a.Partition, Cost: a.Cost, Delay: a.In, At: a.At, MaxRetries: a.Retries, CrashLimit: a.CrashLimit,
		Timeout: a.Timeout, Keep: storage.Keep{For: a.Keep}, Headers: a.Headers,
	}
	in = in.CompleteHeaders()
	if a.Unique == "" {
		return in, nil
	}
	in.Unique = storage.Unique{Mode: storage.UniqueLife, For: a.UniqueFor}
	if a.UniqueFor > 0 {
		in.Unique.Mode = storage.UniqueWindow
	}
	// The client makes the key of Unique{Key: …} in the same way.
	in.Unique.Key = storage.UniqueKey([]byte(a.Kind), []byte(in.Unique.Mode), []byte("key"), []byte(a.Unique))
	in.OnConflict = storage.Skip
	return in, nil
}
