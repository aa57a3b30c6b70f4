package redis

import (
	"hash/maphash"
	"sync"
	"time"
)

// looked remembers, by queue and kinds, the field lines of the queue's meta hash (planlines in
// commit.lua) at which a claim found no declined task of these kinds. For a second, claims need not
// search again before that field changes. Then a claim searches in any case: a failover may have undone
// the step that removed the last tasks of a kind.
type looked struct {
	mu  sync.Mutex // guards all
	all map[lookedFor]foundNone
}

type lookedFor struct {
	queue string
	kinds uint64
}

type foundNone struct {
	lines string
	at    time.Time
}

const (
	// lookedMost bounds the number of entries: a claim whose entry was dropped searches once more.
	lookedMost = 10_000
	// lookedFresh is how long an entry is used.
	lookedFresh = time.Second
)

var kindsSeed = maphash.MakeSeed()

func hashOf(kinds []string) (sum uint64) {
	for _, kind := range kinds {
		sum = sum*31 + maphash.String(kindsSeed, kind)
	}
	return sum
}

// at returns the field lines at which a claim found none of these kinds, or "" if none is known.
func (l *looked) at(queue string, kinds []string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 { // no queue has had declined tasks
		return ""
	}
	known := l.all[lookedFor{queue, hashOf(kinds)}]
	if time.Since(known.at) > lookedFresh {
		return ""
	}
	return known.lines
}

// note keeps the field lines that a claim of these kinds returned.
func (l *looked) note(queue string, kinds []string, lines string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil || len(l.all) >= lookedMost {
		l.all = make(map[lookedFor]foundNone)
	}
	l.all[lookedFor{queue, hashOf(kinds)}] = foundNone{lines, time.Now()}
}
