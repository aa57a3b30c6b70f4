package scene

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
)

// Invented is a storage whose clock and whose work in all queues are invented. The storage
// beneath it stores its tasks.
type Invented struct {
	storage.Storage

	Now     time.Time
	session *storage.Session // writes at the true time
	random  *rand.Rand
	names   []string
	stats   map[string]*storage.Stats
	vitals  vitals.Vitals
}

// Invent returns a storage that invents work in the queues of store, beginning at a
// moment.
func Invent(ctx context.Context, store storage.Storage, now time.Time) (*Invented, error) {
	p := &Invented{
		Storage: store, Now: now, session: storage.NewSession(store, 0), random: rand.New(rand.NewPCG(7, 7)),
		stats:  make(map[string]*storage.Stats),
		vitals: vitals.Vitals{Kinds: []vitals.Kind{{Name: long("kind.import")}, {Name: long("kind.export")}}},
	}
	for name, err := range storage.EachQueue(ctx, store, "") {
		if err != nil {
			return nil, err
		}
		if !storage.Reserved(name) {
			p.names = append(p.names, name)
			p.stats[name] = &storage.Stats{Queue: name}
		}
	}
	return p, nil
}

// Pass moves the clock on by d and lets tasks come and go.
func (p *Invented) Pass(d time.Duration) {
	p.Now = p.Now.Add(d)
	for _, name := range p.names {
		q := p.stats[name]
		n := p.random.Int64N(int64(5000*d.Minutes()) + 1)
		q.Totals.Enqueued += n
		q.Totals.Completed += n - p.random.Int64N(n/10+1)
		q.Totals.Failed += p.random.Int64N(20)
		q.Totals.Dead += p.random.Int64N(2)
		q.Waiting, q.Oldest = p.random.Int64N(10_000), time.Duration(p.random.Int64N(300))*time.Second
	}
	for i := range p.vitals.Kinds {
		k := &p.vitals.Kinds[i]
		for range 20 {
			k.Runs.Add(time.Duration(p.random.ExpFloat64() * float64(100*time.Millisecond)))
		}
		k.Failed += p.random.Uint64N(3)
	}
}

// Describe returns the storage's description with the invented time.
func (p *Invented) Describe(ctx context.Context) (storage.Description, error) {
	d, err := p.Storage.Describe(ctx)
	d.Now = p.Now
	return d, err
}

// Apply writes at the true time.
func (p *Invented) Apply(ctx context.Context, _ storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	return p.session.Apply(ctx, txs...)
}

// Queues returns the queues in which work is invented.
func (p *Invented) Queues(context.Context, storage.QueuesQuery) (storage.QueuesPage, error) {
	return storage.QueuesPage{Names: p.names}, nil
}

// Stats returns the sizes and totals of the invented work.
func (p *Invented) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	all := make([]storage.Stats, 0, len(queues))
	for _, name := range queues {
		if storage.Reserved(name) {
			some, err := p.Storage.Stats(ctx, name)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		} else if q := p.stats[name]; q != nil {
			all = append(all, *q)
		} else {
			all = append(all, storage.Stats{Queue: name})
		}
	}
	return all, nil
}

// Runners returns one runner, which did the work.
func (p *Invented) Runners(context.Context) ([]storage.RunnerInfo, error) {
	return []storage.RunnerInfo{{ID: "invented", Queues: p.names, Vitals: p.vitals.Encode(), Seen: p.Now}}, nil
}
