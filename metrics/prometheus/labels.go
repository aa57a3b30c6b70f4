package prometheus

import "sync"

// Several names share one of these values.
const (
	other   = "other"   // names that come after the first most names
	unknown = "unknown" // the kind of tasks whose kind no runner knew
)

// labels holds the values of a label of the attempts of this process. The first most names have values of
// their own; all others share one.
type labels struct {
	most int

	mu    sync.Mutex
	known map[string]bool
}

func newLabels(most int) *labels { return &labels{most: most, known: make(map[string]bool, most)} }

// of returns the value for a name.
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
