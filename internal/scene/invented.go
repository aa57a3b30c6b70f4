package scene

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
)

// Invented is a storage in which all queues are busy and whose time is invented: what it holds is kept by
// the storage beneath.
type Invented struct {
	storage.Storage

	Now     time.Time
	session *storage.Session // by the true time
	random  *rand.Rand
	names   []string
	stats   map[string]*storage.Stats
	vitals  vitals.Vitals
}

// Invent invents work in the queues of a storage, from a moment on.
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

// Pass lets time pass, in which tasks come and go.
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

// Describe tells the invented time.
func (p *Invented) Describe(ctx context.Context) (storage.Description, error) {
	d, err := p.Storage.Describe(ctx)
	d.Now = p.Now
	return d, err
}

// Apply writes at the true time.
func (p *Invented) Apply(ctx context.Context, _ storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	return p.session.Apply(ctx, txs...)
}

// Queues lists the queues in which work is invented.
func (p *Invented) Queues(context.Context, storage.QueuesQuery) (storage.QueuesPage, error) {
	return storage.QueuesPage{Names: p.names}, nil
}

// Stats tells of the invented work.
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

// Runners tells of one runner, which did the work.
func (p *Invented) Runners(context.Context) ([]storage.RunnerInfo, error) {
	return []storage.RunnerInfo{{ID: "invented", Queues: p.names, Vitals: p.vitals.Encode(), Seen: p.Now}}, nil
}
