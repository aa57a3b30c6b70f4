package scene

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

// Fleet fills an empty storage, whose clock must be this machine's, with so many queues of tenants and so many
// runners. A runner serves 20 queues, and no runner serves the last quarter of them. All queues have waiting
// tasks, and every fortieth has dead ones.
func Fleet(ctx context.Context, store storage.Storage, queues, runners int) (*Scene, error) {
	s := newScene(store, time.Now, new(time.Duration))
	names := make([]string, queues)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%04d-notifications-mail", i)
	}
	served := names[:queues-queues/4]
	s.hire(runners, nil, shopKinds)
	for i := range s.Runners {
		for j := range 20 {
			r := &s.Runners[i]
			r.Queues = append(r.Queues, served[(i*len(served)/runners+j)%len(served)])
		}
	}
	err := s.Beat(ctx)
	for i, queue := range names {
		if i%40 == 7 {
			err = errors.Join(err, s.Add(ctx, queue, "send_invoice", 3, func(_ int, in *storage.Insert) { in.MaxRetries = 0 }),
				s.End(ctx, queue, 3, func(_ int, _ storage.Task, st *storage.Settle) {
					st.Outcome, st.Error = storage.Fail, "send to smtp: "+CauseMail
				}))
		}
		if err = errors.Join(err, s.Add(ctx, queue, "send_welcome", 5, nil)); err != nil {
			return nil, err
		}
	}
	return s, nil
}
