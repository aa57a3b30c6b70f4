package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/midgehq/midge/internal/contain"
	"github.com/midgehq/midge/storage"
)

// tail keeps the end of the text that is written to it.
type tail struct {
	most int
	kept []byte
	lost bool
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.most; over > t.most { // so that the text is moved seldom
		t.kept, t.lost = append(t.kept[:0], t.kept[over:]...), true
	}
	return len(p), nil
}

const cutOff = "(the beginning is cut off)\n"

// text returns the end of the text, in at most that many bytes. It marks a missing beginning.
func (t *tail) text(most int) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.kept), "\ufffd"))
	if !t.lost && len(text) <= most {
		return text
	}
	return cutOff + lastOf(text, most-len(cutOff))
}

// lastOf returns the end of a text, from the beginning of a character on, in at most that many bytes.
func lastOf(text string, most int) string {
	from := max(len(text)-max(most, 0), 0)
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return text[from:]
}

// lastLine returns the last line of a text, or at most that many bytes of it and an ellipsis.
func lastLine(text string, most int) string {
	text = strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	if len(text) <= most {
		return text
	}
	return storage.CleanText(text, most) + "…"
}

// bounded keeps a text up to a length.
type bounded struct {
	most int
	kept []byte
	over bool
}

// Write never fails, so that the program goes on.
func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.most-len(b.kept))
	b.kept = append(b.kept, p[:n]...)
	b.over = b.over || n < len(p)
	return len(p), nil
}

// outputs is the state of the writers for the output of the programs of a worker.
type outputs struct {
	broken chan struct{} // closed when a writer has panicked, or ended its goroutine
	once   sync.Once     // closes broken
	stuck  atomic.Int64  // the calls that have not returned, and for which no attempt waits any more
}

// refuse makes the attempts drop all output from now on, because a writer that has panicked may hold its lock
// for ever. It returns true the first time.
func (o *outputs) refuse() (first bool) {
	o.once.Do(func() {
		close(o.broken)
		first = true
	})
	return first
}

// open reports whether writers are called.
func (o *outputs) open() bool {
	select {
	case <-o.broken:
		return false
	default:
		return o.stuck.Load() == 0
	}
}

// heedless is a writer whose failures reach neither the program nor the worker. It drops the output that
// fails.
type heedless struct {
	*attempt

	name string
	to   io.Writer
}

var errStuck = errors.New("the program has ended, and a call of Write has not: until then all output is lost")

// Write never fails. While the program runs, it waits for the writer, so that a slow one slows the program.
func (h *heedless) Write(p []byte) (int, error) {
	if !h.outputs.open() {
		return len(p), nil
	}
	text := bytes.Clone(p) // the call may outlive this one
	done := make(chan struct{})
	go func() { // ends with the call of the writer
		defer close(done)
		// The value may quote the output, which is data of people.
		panicked := func(v any) error { return fmt.Errorf("panic with a value of type %T", v) }
		err := contain.Call(func() { _, _ = h.to.Write(text) }, panicked)
		if err != nil && h.outputs.refuse() {
			h.task.OutputLost(h.name, fmt.Errorf("all further output is lost: %w", err))
		}
	}()
	select {
	case <-done:
	case <-h.outputs.broken:
	case <-h.child.over:
		h.leave(done)
	}
	return len(p), nil
}

// leave leaves a call of the writer alone. Until it ends, the attempts of the worker drop their output.
func (h *heedless) leave(done <-chan struct{}) {
	select {
	case <-done: // both happened
		return
	default:
	}
	h.outputs.stuck.Add(1)
	go func() { // ends with the call of the writer
		<-done
		h.outputs.stuck.Add(-1)
	}()
	h.task.OutputLost(h.name, errStuck)
}
