package bulk

import (
	"context"
	"time"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// The bounds of the search for samples of a kind: a warning must not make people wait.
const (
	mostSamples = 50
	sampleBytes = 1 << 20
	sampleTime  = 200 * time.Millisecond
)

// Unusual returns the fields of parameters that no task of a kind in a queue has, as far as a short search
// finds samples: most likely their names are mistyped. It returns none if it finds no sample. also are further
// samples.
func Unusual(
	ctx context.Context, store scan.Source, queue, kind string, params []byte, also ...payload.Part,
) ([]string, error) {
	f, err := filter.Parse("kind:" + filter.Quote(kind))
	if err != nil {
		return nil, err
	}
	found, err := scan.Next(ctx, store, scan.Request{
		Filter: f, Queues: []string{queue}, States: storage.States()[:7], Limit: mostSamples, Time: sampleTime,
		Newest: true,
	})
	if err != nil {
		return nil, err
	}
	size := 0
	for _, t := range found.Tasks {
		if size += len(t.Payload); size > sampleBytes && len(also) > 0 {
			break
		}
		also = append(also, payload.Params(t))
	}
	return payload.Unusual(params, also...), nil
}
