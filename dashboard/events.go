package dashboard

import (
	"net/http"
	"time"
)

const (
	// silence is how long a stream says nothing at most.
	silence = 10 * time.Second
	// streamFor is how long a stream lives: then the browser opens another, and who may look is asked anew.
	streamFor = 30 * time.Minute
	// writeFor is how long a browser may take to take what it is told.
	writeFor = 10 * time.Second
)

// events is the live stream: server-sent events with the cells that change.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	select {
	case <-s.sampler.live.closed:
		s.fail(w, r, &statusError{http.StatusServiceUnavailable, "This dashboard is about to stop."})
		return
	default:
	}
	out := http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx passes it on as it comes
	w.WriteHeader(http.StatusOK)
	live := s.sampler.live
	live.join(r.Context(), s.sampler.watch)
	defer live.leave()
	end := time.NewTimer(streamFor)
	defer end.Stop()
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	known := 0
	for {
		data, version, wait := live.next(known)
		if wait != nil {
			select {
			case <-wait:
				continue
			case <-quiet.C:
				data = []byte(": quiet\n\n")
			case <-end.C:
				return
			case <-live.closed:
				return
			case <-r.Context().Done():
				return
			}
		}
		known = version
		quiet.Reset(silence)
		_ = out.SetWriteDeadline(s.now().Add(writeFor)) // what cannot set one bounds writes itself
		if _, err := w.Write(data); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
	}
}
