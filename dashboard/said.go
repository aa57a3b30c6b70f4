package dashboard

import (
	"crypto/rand"
	"net/url"
	"sync"
)

// mostSaid is how many notices are kept.
const mostSaid = 256

// said keeps what acts have told, for the page that follows each.
type said struct {
	mu    sync.Mutex
	order []string
	texts map[string]notice
}

// with keeps a notice and gives the address that shows it.
func (s *said) with(address string, n notice) string {
	id := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts == nil {
		s.texts = map[string]notice{}
	}
	s.texts[id] = n
	if s.order = append(s.order, id); len(s.order) > mostSaid {
		delete(s.texts, s.order[0])
		s.order = s.order[1:]
	}
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	q := u.Query()
	q.Set("said", id)
	u.RawQuery = q.Encode()
	return u.String()
}

// of gives a notice by its id, nil where there is none.
func (s *said) of(id string) *notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.texts[id]; ok {
		return &n
	}
	return nil
}
