package redis

import (
	"hash/maphash"
	"sync"
	"time"
)

// looked has, by queue and kinds, the number lines of the queue (planlines in commit.lua) at which a
// claim found no declined task of these kinds. The claims of the next second need not look before that
// changes. After it one looks all the same: a failover may have taken back the end of a line.
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
	// lookedMost bounds what is known: whoever forgets it looks once more.
	lookedMost = 10_000
	// lookedFresh is for how long it is heeded.
	lookedFresh = time.Second
)

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
	known := l.all[lookedFor{queue, hashOf(kinds)}]
	if time.Since(known.at) > lookedFresh {
		return ""
	}
	return known.lines
}

// note keeps a number that a claim told.
func (l *looked) note(queue string, kinds []string, lines string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil || len(l.all) >= lookedMost {
		l.all = make(map[lookedFor]foundNone)
	}
	l.all[lookedFor{queue, hashOf(kinds)}] = foundNone{lines, time.Now()}
}
