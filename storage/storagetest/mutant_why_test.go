package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

func whyMutants() []mutant {
	unheard := func(next runnersFunc) runnersFunc {
		return func(ctx context.Context) ([]storage.RunnerInfo, error) {
			_, err := next(ctx)
			return nil, err
		}
	}
	return []mutant{
		breaks("runners are not listed", fault{runners: unheard},
			"why/nobody runs it", "why/in line", "why/schedule", "why/with a runner", "why/slots", "why/declined",
			"why/partitions", "why/limits of partitions"),
		breaks("causes of snoozes and ends are lost", fault{task: shown(func(t *storage.Task) { t.Reason = "" })},
			"why/put off", "why/ended"),
		breaks("leases have no end", fault{task: shown(func(t *storage.Task) { t.LeaseUntil = time.Time{} })},
			"why/with a runner"),
		breaks("pauses are not told", fault{stats: counted(func(s *storage.Stats) { s.Paused = false })}, "why/put off"),
		breaks("lines are listed backwards", fault{tasks: listed(func(*storage.TasksQuery) {}, func(p *storage.TasksPage) {
			slices.Reverse(p.Tasks)
		})}, "why/in line", "why/partitions"),
	}
}
