package prometheus

import "sync"

// What shares a label.
const (
	other   = "other"   // what came after the first so many
	unknown = "unknown" // the kind of tasks whose kind no runner knew
)

// labels are the values of a label: the first so many, and one for all others.
type labels struct {
	most int

	mu    sync.Mutex
	known map[string]bool
}

func newLabels(most int) *labels { return &labels{most: most, known: make(map[string]bool, most)} }

// of gives the value for a name.
func (l *labels) of(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known[name] {
		if len(l.known) >= l.most {
			return other
		}
		l.known[name] = true
	}
	return name
}
