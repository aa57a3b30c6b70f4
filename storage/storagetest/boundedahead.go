package storagetest

import (
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

func boundedAhead(r *rig) {
	for _, n := range []int{1, 2, 3, 9, 24} {
		const tasks = 30
		r.configure(limiting(slotsOf(n)))
		r.addMany(tasks)
		req := ask(2)
		req.Ahead = 5
		holds := r.hold(req, max(min(2, n), min(7, n/2)))
		for i, h := range holds {
			r.want(fmt.Sprintf("started of %d slots", n), h.Started, i < 2)
		}
		req.Start = 0
		more := r.hold(req, max(min(5, n/2-len(holds)), 0))
		holds = append(holds, more...)
		c := r.claim(req)
		r.want("claimed ahead after half of the slots", len(c.Tasks), 0)
		r.want("bounded, more", [2]any{c.Bounded, c.More}, [2]any{[]string{mainQueue}, false})
		holds = append(holds, r.hold(ask(tasks), n-len(holds))...)
		r.full("with tasks ahead")
		r.configure(clearing())
		for _, h := range append(holds, r.hold(ask(tasks), tasks-n)...) {
			r.end(h, storage.Complete)
		}
	}
	for _, l := range []storage.Limit{
		starting(1000, time.Hour),
		{Concurrency: 50, Rate: storage.Rate{N: 1000, Per: time.Hour}},
		{Concurrency: 50, Partition: storage.PartitionLimit{Concurrency: 50}},
	} {
		r.configure(limiting(l))
		r.addMany(4)
		ahead := ask(0)
		ahead.Ahead = 5
		c := r.claim(ahead)
		r.want("claimed ahead", ids(c.Tasks), []string{})
		r.want("bounded, more", [2]any{c.Bounded, c.More}, [2]any{[]string{mainQueue}, false})
		ahead.Start = 2
		holds := r.hold(ahead, 2)
		for _, h := range append(holds, r.hold(ask(5), 2)...) {
			r.want("started", h.Started, true)
			r.end(h, storage.Complete)
		}
	}
}
