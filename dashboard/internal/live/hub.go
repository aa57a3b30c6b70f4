// Package live sends browsers the changes of the pages that they show, by server-sent events. It sends cells:
// texts of pages, under keys that the pages have, too.
package live

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"sync"
)

// kept is how many differences a hub keeps for streams that fall behind.
const kept = 8

// Hub sends changes of the pages to all streams of this process. It encodes each change once, however many
// streams there are.
type Hub struct {
	mu      sync.Mutex
	streams int
	stop    context.CancelFunc // ends the call of watch
	ended   chan struct{}      // closed when the call of watch has ended
	closed  chan struct{}      // closed when the process stops
	once    sync.Once          // closes closed

	cells   map[string]string
	version int
	full    []byte        // the encoded cells, nil until a stream needs them
	diffs   [kept][]byte  // by version, modulo kept
	told    chan struct{} // closed with the next version
}

// New returns a hub without streams.
func New() *Hub {
	return &Hub{told: make(chan struct{}), closed: make(chan struct{})}
}

// Close ends all streams.
func (h *Hub) Close() { h.once.Do(func() { close(h.closed) }) }

// Closed reports whether the hub takes no further streams.
func (h *Hub) Closed() bool {
	select {
	case <-h.closed:
		return true
	default:
		return false
	}
}

// join adds a stream. The first stream starts watch in a goroutine, which the last stream ends and waits for.
func (h *Hub) join(ctx context.Context, watch func(context.Context)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams++; h.streams > 1 {
		return
	}
	h.version, h.cells, h.full = 0, nil, nil // the last cells may be old
	ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	h.ended = ended
	go func() {
		defer close(ended)
		watch(ctx)
	}()
}

// leave removes a stream.
func (h *Hub) leave() {
	h.mu.Lock()
	h.streams--
	if h.streams > 0 {
		h.mu.Unlock()
		return
	}
	stop, ended := h.stop, h.ended
	h.mu.Unlock()
	stop()
	<-ended
}

// Tell makes a new version of the cells, and sends the cells that differ from the last version to the
// streams.
func (h *Hub) Tell(cells map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	diff := map[string]string{}
	for key, text := range cells {
		if was, ok := h.cells[key]; !ok || was != text {
			diff[key] = text
		}
	}
	for key := range h.cells {
		if _, ok := cells[key]; !ok {
			diff[key] = ""
		}
	}
	h.version++
	h.cells, h.full = maps.Clone(cells), nil
	h.diffs[h.version%kept] = event("diff", diff)
	close(h.told)
	h.told = make(chan struct{})
}

// next returns the changes since the version that a stream knows, and the new version. A stream that knows no
// version, or one too old, gets all cells. If nothing has changed, wait is closed with the next change.
func (h *Hub) next(known int) (data []byte, version int, wait <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch behind := h.version - known; {
	case h.version == 0 || behind == 0:
		return nil, known, h.told
	case known == 0 || behind < 0 || behind >= kept:
		return h.all(), h.version, nil
	default:
		return h.since(known), h.version, nil
	}
}

// since returns the changes since a version, as one of the slices that all streams share wherever possible:
// many slow streams must not take much more memory than one.
func (h *Hub) since(known int) []byte {
	if h.version-known == 1 {
		return h.diffs[h.version%kept]
	}
	size := 0
	for v := known + 1; v <= h.version; v++ {
		size += len(h.diffs[v%kept])
	}
	if all := h.all(); size > len(all)/mostCopied {
		return all
	}
	data := make([]byte, 0, size)
	for v := known + 1; v <= h.version; v++ {
		data = append(data, h.diffs[v%kept]...)
	}
	return data
}

// mostCopied is the part of all cells that the changes for one stream may take.
const mostCopied = 8

// all returns all cells as an event.
func (h *Hub) all() []byte {
	if h.full == nil {
		h.full = event("all", h.cells)
	}
	return h.full
}

// event encodes a server-sent event.
func event(name string, cells map[string]string) []byte {
	var b bytes.Buffer
	b.WriteString("event: " + name + "\ndata: ")
	encoded, _ := json.Marshal(cells) //nolint:errchkjson // cannot fail: texts alone
	b.Write(encoded)
	b.WriteString("\n\n")
	return b.Bytes()
}
