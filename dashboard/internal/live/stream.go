package live

import (
	"context"
	"net/http"
	"time"
)

const (
	// silence is the longest time for which a stream sends nothing.
	silence = 10 * time.Second
	// streamFor is how long a stream lives. Then the browser opens another one.
	streamFor = 30 * time.Minute
	// writeFor limits one write to a browser.
	writeFor = 10 * time.Second
)

// Serve answers a request with a stream of the cells that change. The first stream of the hub starts watch in
// a goroutine, which passes the cells to Tell. The last stream cancels its context and waits for it. A stream
// ends with its request, with the hub, after streamFor, or if may reports before a message that the viewer
// may not see it any more.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, watch func(context.Context), may func() bool) {
	out := http.NewResponseController(w)
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // nginx then does not buffer the stream
	w.WriteHeader(http.StatusOK)
	h.join(r.Context(), watch)
	defer h.leave()
	end := time.NewTimer(streamFor)
	defer end.Stop()
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	known := 0
	for {
		data, version, wait := h.next(known)
		if wait != nil {
			select {
			case <-wait:
				continue
			case <-quiet.C:
				data = []byte(": quiet\n\n")
			case <-end.C:
				return
			case <-h.closed:
				return
			case <-r.Context().Done():
				return
			}
		}
		if !may() {
			return
		}
		known = version
		quiet.Reset(silence)
		_ = out.SetWriteDeadline(time.Now().Add(writeFor)) // a server without deadlines has limits of its own
		if _, err := w.Write(data); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
		_ = out.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream when a deadline passes, without a write too
	}
}
