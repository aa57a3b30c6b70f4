package midge

import (
	"context"
	"fmt"
	"reflect"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// RawJob is a job whose parameters are not decoded; see [HandleRaw].
type RawJob struct {
	Kind string
	// Encoding is the encoding of Payload, such as [MessagePack]. It may be an encoding that midge does not
	// have, if another program enqueued the task.
	Encoding Encoding
	// Payload holds the parameters as they are stored. It must not be changed.
	Payload []byte
}

// JSON returns the parameters as JSON without white space, whatever their encoding. Integers keep all their
// digits, and bytes become an object with their base64 text, as in {"$bytes":"AAEC"}. A job that returns
// the error for damaged parameters, or for an unknown encoding, is put off as a job whose parameters do not
// fit its type.
func (j RawJob) JSON() ([]byte, error) {
	text, err := payload.JSON(string(j.Encoding), j.Payload)
	if err != nil {
		return nil, fmt.Errorf("midge: parameters of %s: %w", j.Kind, cannotDecode(err))
	}
	return text, nil
}

// HandleRaw registers a function for the jobs of a kind that has no Go type here, such as jobs that another
// program runs. The function receives the parameters as bytes, in any encoding and without a check. The job
// may call all functions of running jobs, such as [SetResult], [Step] and [FollowUp], and RunInfo.Job is a
// pointer to its RawJob. Functions that store a value, such as [SetResult] and [Step], return an
// *[InvalidError] if the task has an encoding other than "msgpack" and "json".
//
// A kind declares no queue: RunnerConfig.Queues must list the queues unless they are the default queue alone.
// The backoff is the runner's, and so is the timeout of tasks that were enqueued without one.
//
// HandleRaw returns an *[InvalidError] for an invalid kind, a nil function, and a kind that is registered
// already, and [ErrRunning] once the runner has been started.
func HandleRaw(r *Runner, kind string, fn func(ctx context.Context, job RawJob) error) error {
	switch {
	case r == nil:
		return fmt.Errorf("midge: register: %w", storage.Invalid("runner", "nil", "one made by NewRunner"))
	case fn == nil:
		return fmt.Errorf("midge: register: %w", storage.Invalid("function", "nil", "a function of a job"))
	}
	if err := storage.CheckName("kind", kind); err != nil {
		return wrap(err, "register")
	}
	return r.add(&handler{
		definition: &definition{kind: kind, typ: rawType},
		decode: func(encoding string, payload []byte) (any, error) {
			return &RawJob{Kind: kind, Encoding: Encoding(encoding), Payload: payload}, nil
		},
		run: func(ctx context.Context, job any) error {
			j, _ := job.(*RawJob) // decode made it
			return fn(ctx, *j)
		},
	})
}

var rawType = reflect.TypeFor[RawJob]()
