package dashboard

import "sync"

// mostStreams is how many live streams a user may have. Only one tab of a browser has one. A page without a
// stream is fetched again every few seconds.
const mostStreams = 50

// streams counts the live streams of each user, so that one user does not take all connections.
type streams struct {
	mu sync.Mutex
	of map[string]int
}

// begin counts a stream of a user. It reports false if the user has too many. The caller calls end when the
// stream has ended.
func (s *streams) begin(user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[user] >= mostStreams {
		return false
	}
	if s.of == nil {
		s.of = make(map[string]int)
	}
	s.of[user]++
	return true
}

func (s *streams) end(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[user]--; s.of[user] == 0 {
		delete(s.of, user)
	}
}
