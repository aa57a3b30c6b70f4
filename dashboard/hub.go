package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"sync"
)

// kept is how many differences a hub keeps for streams that are behind.
const kept = 8

// hub tells all streams of this process what has changed on the pages. What it tells is encoded once,
// however many listen.
type hub struct {
	mu      sync.Mutex
	streams int
	stop    context.CancelFunc // ends the watch
	ended   chan struct{}      // closed when the watch has ended
	closed  chan struct{}      // closed when the process stops
	once    sync.Once          // closes it

	cells   map[string]string
	version int
	full    []byte        // the encoded cells, nil until a stream wants them
	diffs   [kept][]byte  // by version, modulo kept
	told    chan struct{} // closed with the next version
}

func newHub() *hub {
	return &hub{told: make(chan struct{}), closed: make(chan struct{})}
}

// close ends all streams.
func (h *hub) close() { h.once.Do(func() { close(h.closed) }) }

// join counts a stream in. The first has watch begin, in a goroutine that the last one ends and waits for.
func (h *hub) join(ctx context.Context, watch func(context.Context)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams++; h.streams > 1 {
		return
	}
	h.version, h.cells, h.full = 0, nil, nil // what was told last may be of long ago
	ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	h.ended = ended
	go func() {
		defer close(ended)
		watch(ctx)
	}()
}

// leave counts a stream out.
func (h *hub) leave() {
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

// watched reports whether anybody listens.
func (h *hub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams > 0
}

// tell makes a version of the cells that differ from the last ones.
func (h *hub) tell(cells map[string]string) {
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

// next gives what a stream that knows a version has not heard yet, and the version that it knows then. A
// stream that knows none, or is far behind, is told everything. Where there is nothing new, wait is closed
// when there is.
func (h *hub) next(known int) (data []byte, version int, wait <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch behind := h.version - known; {
	case h.version == 0 || behind == 0:
		return nil, known, h.told
	case known == 0 || behind < 0 || behind >= kept:
		if h.full == nil {
			h.full = event("all", h.cells)
		}
		return h.full, h.version, nil
	default:
		for v := known + 1; v <= h.version; v++ {
			data = append(data, h.diffs[v%kept]...)
		}
		return data, h.version, nil
	}
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
