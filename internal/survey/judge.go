package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/internal/schedule"
)

// toldCauses is how many causes of death get a finding of their own. One finding stands for all others.
const toldCauses = 5

// judge is a judgement in the making.
type judge struct {
	*Survey

	b               Bounds
	w               Words
	found, accepted []Finding
	declared        map[string][2]*declaration // of limits, by queue
}

// Findings returns what needs attention, in the order of Sorts. Findings of one sort keep the order of their
// queues. accepted are the findings that the bounds accept.
func (s *Survey) Findings(b Bounds, w Words) (found, accepted []Finding) {
	j := judge{Survey: s, b: b, w: w.withDefaults(), found: []Finding{}, accepted: []Finding{}}
	j.declared = s.declarations()
	j.storage()
	j.noRunners()
	for i := range s.Queues {
		j.queue(&s.Queues[i])
	}
	j.unstopped()
	j.dead()
	for i := range s.Schedules {
		j.schedule(&s.Schedules[i])
	}
	j.orphans()
	order := make(map[Sort]int)
	for i, sort := range Sorts() {
		order[sort] = i
	}
	for _, list := range [][]Finding{j.found, j.accepted} {
		slices.SortStableFunc(list, func(a, b Finding) int {
			return cmp.Compare(order[Sort{a.Level, a.Code}], order[Sort{b.Level, b.Code}])
		})
	}
	return j.found, j.accepted
}

// add adds a finding.
func (j *judge) add(f Finding) {
	if f.Kinds == nil {
		f.Kinds = map[string]int64{}
	}
	if j.b.Accepts(f.Accept) {
		j.accepted = append(j.accepted, f)
		return
	}
	j.found = append(j.found, f)
}

// storage adds the findings on the storage itself.
func (j *judge) storage() {
	if full := j.Info.Full; full != "" {
		next := "enlarge the storage"
		if j.Sum(func(q *Queue) int64 { return q.Dead }) > 0 {
			next += ", or midge task rm state:dead"
		}
		j.add(Finding{
			Level: Problem, Code: "full", Text: "The storage is full", Next: next,
			Detail: sentences(full, "nothing can be enqueued until there is room"), Since: Moment(j.Info.FullSince),
		})
	}
	if why := j.Info.ReadOnly; why != "" {
		j.add(Finding{
			Level: Problem, Code: "read-only", Text: "The storage can only be read",
			Detail: sentences(why, "no task can be enqueued or run"),
		})
	}
	for _, warning := range j.Info.Warnings {
		if warning == j.Info.ReadOnly {
			continue
		}
		j.add(Finding{Level: Notice, Code: "storage", Text: "The storage warns", Detail: warning})
	}
}

// noRunner returns the name of the finding that a queue lacks a runner.
func noRunner(queue string) string { return "no-runner:" + queue }

// noRunners adds the finding that no runner is alive, if something needs one. It stands for the findings on
// each queue and each schedule: the schedules of a process that has just crashed are not orphaned.
func (j *judge) noRunners() {
	var needs Unserved
	for i := range j.Queues {
		if q := &j.Queues[i]; !q.OnlyLoads && !j.b.Accepts(noRunner(q.Queue)) {
			needs.Add(&q.Stats)
		}
	}
	text := needs.Text(func(n int64) string { return j.w.Number(n) + j.w.Gap })
	if len(j.Runners) > 0 || text == "" {
		return
	}
	j.add(Finding{
		Level: Problem, Code: "no-runners", Accept: "no-runners", Text: "No runner is alive", Detail: text + ".",
		Next: "start the program that runs the jobs, then midge runner ls",
	})
}

// queue adds the findings on a queue.
func (j *judge) queue(q *Queue) {
	waits := j.w.Waits(q.Waiting) + " in it"
	old := j.b.TooOld(q)
	if q.Paused {
		j.paused(q, waits, old)
	}
	if q.Idle() {
		if len(j.Runners) > 0 || j.b.Accepts(noRunner(q.Queue)) { // else noRunners reports all queues
			if q.Oldest > 0 {
				waits += ", the oldest for " + j.w.Span(q.Oldest)
			}
			// It is not known when the last runner left: the oldest task may have come before or after that.
			j.add(Finding{
				Level: Problem, Code: "no-runner", Queue: q.Queue, Accept: noRunner(q.Queue), Tasks: q.Waiting,
				Text: "No live runner serves the queue " + q.Queue, Detail: sentences(waits),
				Next: "start a program that serves it, or midge task move --queue " + q.Queue + " --to QUEUE",
			})
		}
	}
	j.limits(q)
	known := j.b.Accepts(noRunner(q.Queue)) || len(j.Runners) == 0 && j.b.Accepts("no-runners")
	if old && !q.Paused && (!q.Idle() || known) { // else paused or no-runner reports it
		limit, next := j.waitsForLimit(q)
		j.add(Finding{
			Level: Problem, Code: "oldest", Queue: q.Queue, Accept: "oldest:" + q.Queue, Tasks: q.Waiting,
			Text:   "The oldest task of " + q.Queue + " has waited for " + j.w.Span(q.Oldest),
			Detail: sentences(waits, limit), Since: Moment(j.now().Add(-q.Oldest)),
			Next: next,
		})
	}
	j.kinds(q)
	j.evicted(q)
	if n := q.UnreadSchedules; n > 0 {
		j.add(Finding{
			Level: Notice, Code: "unread-schedules", Queue: q.Queue, Accept: "unread-schedules:" + q.Queue,
			Text:   "The findings leave out " + j.w.count(n, "schedule") + " of " + q.Queue,
			Detail: "Whether these tick was not checked.",
			Next:   "midge schedule ls --orphaned --queue " + q.Queue,
		})
	}
	if q.Damaged > 0 {
		j.add(Finding{
			Level: Problem, Code: "damaged", Queue: q.Queue, Next: "midge queue show " + q.Queue,
			Text: j.w.count(q.Damaged, "record") + " of " + q.Queue + " could not be read",
			Detail: "Damaged records are set apart, and all other tasks run. A record without a place in its queue " +
				"counts as damaged until its task waits again.",
		})
	}
}

// paused adds the finding that a queue is paused. It is a problem if a task has waited for too long.
func (j *judge) paused(q *Queue, waits string, old bool) {
	f := Finding{
		Level: Notice, Code: "paused", Queue: q.Queue, Accept: "paused:" + q.Queue, Tasks: q.Waiting,
		Text: "The queue " + q.Queue + " is paused", Since: Moment(q.PausedSince), Who: q.PausedBy,
		Next: "midge queue resume " + q.Queue,
	}
	by, until, oldest := "", "", ""
	if old {
		f.Level, oldest = Problem, "the oldest has waited for "+j.w.Span(q.Oldest)
	}
	if q.PausedBy != "" {
		by = "paused by " + q.PausedBy
	}
	if !q.PausedUntil.IsZero() {
		until = "it resumes by itself in " + j.w.Span(max(q.PausedUntil.Sub(j.now()), 0))
	}
	f.Detail = sentences(waits, by, until, oldest)
	j.add(f)
}

// kinds adds the findings on kinds that no runner of a queue runs: nobody knows them, or cannot decode them.
func (j *judge) kinds(q *Queue) {
	for _, k := range q.Unknown {
		j.add(Finding{
			Level: Problem, Code: "unknown-kind", Queue: q.Queue, Kind: k.Kind, Tasks: k.Tasks,
			Accept: "unknown-kind:" + q.Queue + "/" + k.Kind, Since: Moment(q.UnknownSince),
			Text:   "No runner on " + q.Queue + " handles " + k.Kind,
			Detail: sentences(j.w.Waits(k.Tasks) + " for a runner that handles it"),
			Next:   "deploy its program, or midge task rm --queue " + q.Queue + " 'is:declined kind:" + k.Kind + "'",
		})
	}
	for _, k := range q.Undecodable {
		least := "at least " + j.w.count(k.Tasks, "task") + " cannot be run"
		dead := "without a program that can read them they are dead " +
			j.w.Span(j.Info.Limits.WithDefaults().DeclinedFor) + " after they were put off first"
		j.add(Finding{
			Level: Problem, Code: "undecodable", Queue: q.Queue, Kind: k.Kind, Tasks: k.Tasks,
			Accept: "undecodable:" + q.Queue + "/" + k.Kind, Since: Moment(k.Since), Last: Moment(k.Last),
			Text: "Runners of " + q.Queue + " cannot decode tasks of the kind " + k.Kind,
			Detail: sentences(least, k.Reason, dead,
				"deploy a program that reads them, or correct each of them by midge task edit"),
			Next: "midge task ls --queue " + q.Queue + " 'kind:" + k.Kind + " reason:undecodable'",
		})
	}
}

// unstopped adds the findings on jobs that ignore the end of their context: one for each queue and kind.
func (j *judge) unstopped() {
	type sort struct{ queue, kind string }
	found := make(map[sort]*Finding)
	var order []*Finding
	for i := range j.Runners {
		r := &j.Runners[i]
		for _, t := range r.Running {
			if t.Unstopped.IsZero() {
				continue
			}
			key := sort{t.Ref.Queue, t.Kind}
			f := found[key]
			if f == nil {
				f = &Finding{Level: Problem, Code: "unstopped", Queue: key.queue, Kind: key.kind}
				found[key] = f
				order = append(order, f)
			}
			if f.Tasks++; f.Since == nil || t.Unstopped.Before(*f.Since) {
				f.Since, f.Task, f.Runner = Moment(t.Unstopped), t.Ref.String(), r.ID
				f.Detail = fmt.Sprintf("Only the end of its process stops it: %s on %s, process %d.", f.Task, r.Host, r.PID)
			}
		}
	}
	for _, f := range order {
		f.Text = "A job of the kind " + f.Kind + " ignores the end of its context"
		if f.Tasks > 1 {
			f.Text = j.w.count(f.Tasks, "job") + " of the kind " + f.Kind + " ignore the end of their context"
		}
		f.Next = "midge task why " + f.Task
		j.add(*f)
	}
}

// nearLimit is the part of the dead tasks that a queue keeps at which a finding reports that it is nearly
// full.
const nearLimit = 0.8

// evicted adds the finding that a queue has, or nearly has, as many dead tasks as it keeps.
func (j *judge) evicted(q *Queue) {
	most := int64(j.Info.Limits.DeadMax)
	if most <= 0 || float64(q.Dead) < nearLimit*float64(most) {
		return
	}
	f := Finding{
		Level: Notice, Code: "dead-limit", Queue: q.Queue, Accept: "dead-limit:" + q.Queue, Tasks: q.Dead,
		Text:   "The queue " + q.Queue + " has nearly as many dead tasks as it keeps",
		Detail: sentences(j.w.Number(q.Dead) + " of " + j.w.Number(most) + "; beyond that the oldest are deleted"),
		Next:   "midge task ls --by cause --queue " + q.Queue,
	}
	if n := q.Totals.Evicted; n > 0 {
		f.Level, f.Code, f.Accept, f.Tasks = Problem, "evicted", "evicted:"+q.Queue, n
		f.Text = "Dead tasks of the queue " + q.Queue + " are deleted early"
		f.Detail = sentences("it keeps "+j.w.Number(most)+" of them, and has deleted the oldest "+j.w.Number(n),
			"requeue or delete dead tasks, or raise Limits.DeadMax")
	}
	j.add(f)
}

// now is the storage's time.
func (s *Survey) now() time.Time { return s.At.Add(s.Skew) }

// schedule adds the finding on a schedule that does not tick.
func (j *judge) schedule(c *Schedule) {
	name := c.Queue + "/" + c.Name()
	of := "it belongs to the queue " + c.Queue
	switch {
	case c.Damaged:
		j.add(Finding{
			Level: Problem, Code: "damaged-schedule", Queue: c.Queue, Schedule: c.Name(),
			Text: "The schedule " + c.Name() + " is damaged", Detail: sentences("it never ticks", of),
			Next: "midge schedule show " + name,
		})
	case c.Clashes:
		j.add(Finding{
			Level: Problem, Code: "clash", Queue: c.Queue, Schedule: c.Name(),
			Text:   "The schedule " + c.Name() + " has two owners",
			Detail: sentences(schedule.ErrKept.Error(), of), Next: "midge schedule show " + name,
		})
	case c.Orphaned && len(j.Runners) > 0 && !c.Declaration.Kept: // else see noRunners and orphans
		f := Finding{
			Level: Problem, Code: "orphaned", Queue: c.Queue, Schedule: c.Name(),
			Text:   "The schedule " + c.Name() + " is orphaned",
			Detail: sentences("no live runner declares it, so it does not tick", of), Accept: "orphaned:" + name,
			Next: "deploy its program, or midge schedule rm " + name,
		}
		if next := c.Cursor.Next; next.Before(j.now()) {
			f.Since = Moment(next)
		}
		j.add(f)
	}
}

// orphans adds the findings on the kept schedules that do not tick: one for each queue and kind, because all
// schedules of a kind lack the same runner.
func (j *judge) orphans() {
	if len(j.Runners) == 0 { // see noRunners
		return
	}
	found := make(map[[2]string][]*Schedule)
	var order [][2]string
	for i := range j.Schedules {
		c := &j.Schedules[i]
		if key := [2]string{c.Queue, c.Kind}; c.Orphaned && c.Declaration.Kept {
			if found[key] == nil {
				order = append(order, key)
			}
			found[key] = append(found[key], c)
		}
	}
	for _, key := range order {
		queue, kind, first := key[0], key[1], found[key][0]
		f := Finding{
			Level: Problem, Code: "orphaned", Queue: queue, Kind: kind, Schedule: first.Name(),
			Text: "The schedule " + first.Name() + " is orphaned", Accept: "orphaned:" + queue + "/" + kind,
			Detail: sentences("no live runner of the queue " + queue + " handles " + kind + ", so it does not tick"),
			Next:   "deploy a program that handles " + kind + ", or midge schedule rm " + queue + "/" + first.Name(),
		}
		if n := len(found[key]); n > 1 {
			f.Text = j.w.count(int64(n), "schedule") + " of the kind " + kind + " are orphaned"
			f.Detail, f.Schedule = strings.Replace(f.Detail, "it does", "they do", 1), ""
			f.Next = "deploy a program that handles " + kind + "; midge schedule ls --orphaned --queue " + queue
		}
		if next := first.Cursor.Next; next.Before(j.now()) { // the first is due first
			f.Since = Moment(next)
		}
		j.add(f)
	}
}

// dead adds the findings on the dead tasks, if there are more than the bound or if there is no bound.
func (j *judge) dead() {
	total := j.Sum(func(q *Queue) int64 { return q.Dead })
	if total <= max(0, j.b.Dead) || j.Dead == nil {
		return
	}
	dead := total - j.acceptedDead(&j.b)
	within := j.b.Dead >= 0 && dead <= j.b.Dead
	if j.b.Dead >= 0 && !within {
		j.add(Finding{
			Level: Problem, Code: "dead", Tasks: dead, Text: j.w.count(dead, "task") + " died",
			Detail: "At most " + j.w.Number(j.b.Dead) + " may be dead.", Next: "midge task ls --by cause",
		})
	}
	var told, causes, tasks int64
	for _, g := range j.Dead.Groups {
		switch accepted := j.b.Accepts(g.accept()); {
		case !accepted && within:
		case !accepted && told == toldCauses:
			causes, tasks = causes+1, tasks+g.Tasks
		default:
			j.cause(g)
			if !accepted {
				told++
			}
		}
	}
	if causes > 0 {
		j.add(Finding{
			Level: Notice, Code: "causes", Tasks: tasks, Next: "midge task ls --by cause",
			Text: fmt.Sprintf("%s died of %s", j.w.count(tasks, "task"), j.w.count(causes, "other cause")),
		})
	}
	if rest := total - j.Dead.Read; rest > 0 && told > 0 {
		j.add(Finding{
			Level: Notice, Code: "unread", Tasks: rest, Next: "midge task ls --by cause",
			Text:   "The causes are those of " + j.w.count(j.Dead.Read, "task"),
			Detail: sentences(j.w.Number(rest) + " more died"),
		})
	}
}

// acceptedDead returns how many of the counted tasks died of accepted causes.
func (s *Survey) acceptedDead(b *Bounds) (tasks int64) {
	for _, g := range s.Dead.Groups {
		if b.Accepts(g.accept()) {
			tasks += g.Tasks
		}
	}
	return tasks
}

// accept returns the name of the finding on a cause; "" for tasks without an error.
func (g *Cause) accept() string {
	if g.ID == "" {
		return ""
	}
	return "cause:" + g.ID
}

// shownKinds is how many kinds of a cause a text names.
const shownKinds = 3

// Of names the most frequent kinds of the tasks, each with its number, and counts the other kinds.
func (g *Cause) Of(w Words) string {
	w = w.withDefaults()
	names := make([]string, 0, shownKinds)
	for _, k := range g.Kinds[:min(shownKinds, len(g.Kinds))] {
		names = append(names, k.Kind+" ("+w.Number(k.Tasks)+")")
	}
	text := strings.Join(names, ", ")
	if more := len(g.Kinds) - shownKinds; more > 0 {
		text += " and " + w.count(int64(more), "more kind")
	}
	return text
}

// cause adds the finding on a cause of death.
func (j *judge) cause(g *Cause) {
	f := Finding{
		Level: Notice, Code: "cause", Accept: g.accept(), Cause: g.ID, Tasks: g.Tasks, Kinds: g.kinds,
		Text: g.Error, Error: g.Error, Since: Moment(g.First), Last: Moment(g.Last),
		Next: scan.Proposal("cause:"+g.ID, g.Tasks, g.Discarded),
	}
	if g.ID == "" {
		f.Next, f.Error = scan.Proposal(`cause:""`, g.Tasks, g.Discarded), ""
	}
	if len(g.Queues) == 1 {
		f.Queue = g.Queues[0]
	}
	discarded := ""
	switch g.Discarded {
	case 0:
	case g.Tasks:
		discarded = "the job discarded these tasks"
	default:
		discarded = "the job discarded " + j.w.count(g.Discarded, "task") + " of these"
	}
	f.Detail = sentences(j.w.count(g.Tasks, "task")+" died: "+g.Of(j.w), discarded)
	j.add(f)
}
