package bulk

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/midgehq/midge/storage"
)

// Save writes the tasks that a deletion would take, in the format of [Request.Backup], and changes nothing. It
// returns the tasks at the versions that it has written: a deletion of these targets deletes no task of which
// the file has no line, or has other content. Rate, Backup and Progress are ignored. After an error the file
// is not whole.
func Save(ctx context.Context, session *storage.Session, req Request, to io.Writer) ([]Target, error) {
	req.Rate, req.Backup, req.Progress = 0, nil, nil
	if err := req.prepare(ctx, session); err != nil {
		return nil, err
	}
	w := &worker{req: req, session: session}
	var saved []Target
	seen := make(map[storage.Ref]bool) // a task that changes its state meanwhile may be listed again
	for listed, err := range w.tasks(ctx) {
		if err != nil {
			return saved, err
		}
		if _, ok := w.step(ctx, listed); !ok || seen[listed.Ref] {
			continue
		}
		seen[listed.Ref] = true
		t, err := session.Storage().Task(ctx, listed.Ref) // a listing leaves out the stack and the result
		switch {
		case errors.Is(err, storage.ErrNotFound), err == nil && t.Version != listed.Version:
			continue // it may not match any more
		case err == nil:
			err = RecordOf(t).write(to)
		}
		if err != nil {
			return saved, fmt.Errorf("save %s: %w", listed.Ref, err)
		}
		saved = append(saved, Target{Ref: t.Ref, Version: t.Version})
	}
	return saved, w.err
}
