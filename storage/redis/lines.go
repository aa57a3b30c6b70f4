package redis

import (
	"hash/maphash"
	"sync"
)

// looked has, by queue and kinds, the number lines of the queue (planlines in commit.lua) at which a
// claim found no declined task of these kinds. The claims after it need not look before that changes.
type looked struct {
	mu  sync.Mutex // guards all
	all map[lookedFor]string
}

type lookedFor struct {
	queue string
	kinds uint64
}

// lookedMost bounds what is known: whoever forgets it looks once more.
const lookedMost = 10_000

var kindsSeed = maphash.MakeSeed()

func hashOf(kinds []string) (sum uint64) {
	for _, kind := range kinds {
		sum = sum*31 + maphash.String(kindsSeed, kind)
	}
	return sum
}

// at gives that number, "" where none is known.
func (l *looked) at(queue string, kinds []string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 { // no queue has had declined tasks
		return ""
	}
	return l.all[lookedFor{queue, hashOf(kinds)}]
}

// note keeps a number that a claim told.
func (l *looked) note(queue string, kinds []string, lines string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil || len(l.all) >= lookedMost {
		l.all = make(map[lookedFor]string)
	}
	l.all[lookedFor{queue, hashOf(kinds)}] = lines
}
