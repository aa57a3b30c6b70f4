package show

import (
	"encoding/json"
	"time"

	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// The records are the JSON output of the commands. docs/operating.md documents their fields, and a test
// protects them: a field may be added, but no field changes its name or its meaning. Times are RFC 3339 in
// UTC, durations are seconds.

// Live are the numbers of tasks in each state of tasks that have not ended.
type Live struct {
	Waiting   int64 `json:"waiting"`
	Pending   int64 `json:"pending"`
	Scheduled int64 `json:"scheduled"`
	Retry     int64 `json:"retry"`
}

// LiveOf returns the numbers of a queue.
func LiveOf(s *storage.Stats) Live { return Live{s.Waiting, s.Pending, s.Scheduled, s.Retry} }

// Sizes are the numbers of records in each state.
type Sizes struct {
	Live

	Completed int64 `json:"completed"`
	Cancelled int64 `json:"cancelled"`
	Dead      int64 `json:"dead"`
	Schedules int64 `json:"schedules"`
	Damaged   int64 `json:"damaged"`
}

// sizesOf returns the sizes of a queue.
func sizesOf(s *storage.Stats) Sizes {
	return Sizes{
		Live: LiveOf(s), Completed: s.Completed, Cancelled: s.Cancelled, Dead: s.Dead, Schedules: s.Cursors,
		Damaged: s.Damaged,
	}
}

// Queue is the record of a queue.
type Queue struct {
	Queue string `json:"queue"`
	Sizes
	Declined    []Kind     `json:"declined"`
	Oldest      float64    `json:"oldest_seconds"`
	Paused      bool       `json:"paused"`
	PausedUntil *time.Time `json:"paused_until"`
	Runners     int        `json:"runners"`
	Totals      Totals     `json:"totals"`
	// Limit is nil if no program has declared a limit and no operator has set one.
	Limit *QueueLimit `json:"limit"`
	// Partitioned counts the waiting tasks that stand in the lines of partitions.
	Partitioned int64 `json:"partitioned"`
}

// Partition is the record of a partition of a queue.
type Partition struct {
	Partition   string     `json:"partition"`
	Waiting     int64      `json:"waiting"`
	Running     int64      `json:"running"` // tasks that count for the concurrency of its limit
	Started     int64      `json:"started"` // starts that count for the rate of partitions
	Next        *time.Time `json:"next"`    // when that rate admits another start, nil for now
	Limited     bool       `json:"limited"` // the limit of partitions admits no other start now
	RestsUntil  *time.Time `json:"rests_until"`
	Paused      bool       `json:"paused"`
	PausedUntil *time.Time `json:"paused_until"`
	// Limit is the limit of this partition alone, nil if that of all partitions of the queue holds.
	Limit *PartitionLimit `json:"limit"`
}

// PartitionOf makes the record of a partition. l is the limit of the partitions of its queue.
func PartitionOf(s storage.PartitionStats, l storage.PartitionLimit) Partition {
	full, spent := s.AtLimit(l)
	var own *PartitionLimit
	if s.Limit != nil {
		own = new(partitionLimitOf(*s.Limit))
	}
	return Partition{
		Partition: s.Key, Waiting: s.Waiting, Running: s.Running, Started: storage.Started(s.Counts),
		Next: survey.Moment(s.Next), Limited: full || spent, RestsUntil: survey.Moment(s.Rests),
		Paused: s.Paused, PausedUntil: survey.Moment(s.PausedUntil), Limit: own,
	}
}

// Kind is the number of tasks of a kind.
type Kind struct {
	Kind  string `json:"kind"`
	Tasks int64  `json:"tasks"`
}

// Totals are the counts of a queue over its lifetime.
type Totals struct {
	Enqueued  int64 `json:"enqueued"`
	Requeued  int64 `json:"requeued"`
	Completed int64 `json:"completed"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled"`
	Deleted   int64 `json:"deleted"`
	Failed    int64 `json:"failed"`
	Crashed   int64 `json:"crashed"`
	Evicted   int64 `json:"evicted"`
}

// Runner is the record of a live runner.
type Runner struct {
	ID          string   `json:"id"`
	Host        string   `json:"host"`
	PID         int      `json:"pid"`
	Version     string   `json:"version"`
	Queues      []string `json:"queues"`
	Kinds       []string `json:"kinds"`
	Concurrency int      `json:"concurrency"`
	Busy        int      `json:"busy"` // slots that are taken; Running may list fewer tasks
	// Slots lists the queues of which the runner runs fewer jobs at once than Concurrency, or none now.
	Slots []QueueSlots `json:"slots"`
	// Limits lists the limits of queues that the runner declares.
	Limits  []RunnerLimit `json:"limits"`
	Started time.Time     `json:"started"`
	Seen    time.Time     `json:"seen"`
	Running []Running     `json:"running"`
	// Undecodable lists the kinds of which the runner could lately not decode tasks.
	Undecodable []Undecodable `json:"undecodable"`
}

// QueueSlots are the slots that a runner has for a queue.
type QueueSlots struct {
	Queue  string `json:"queue"`
	Slots  int    `json:"slots"` // 0 for as many as the runner has
	Taken  int    `json:"taken"`
	Closed bool   `json:"closed"` // by a gate
}

// Undecodable is a kind of which a runner could lately not decode tasks of a queue.
type Undecodable struct {
	Queue  string     `json:"queue"`
	Kind   string     `json:"kind"`
	Since  *time.Time `json:"since"`
	Tasks  int64      `json:"tasks"` // at least
	Reason string     `json:"reason"`
}

// Running is a task that a runner runs.
type Running struct {
	Ref   string    `json:"ref"`
	Kind  string    `json:"kind"`
	Since time.Time `json:"since"`
}

// Schedule is the record of a periodic schedule.
type Schedule struct {
	Schedule string      `json:"schedule"`
	Queue    string      `json:"queue"`
	Kind     string      `json:"kind"`
	Spec     string      `json:"spec"`
	Zone     string      `json:"zone"`
	CatchUp  string      `json:"catch_up"`
	Overlap  string      `json:"overlap"`
	Next     *time.Time  `json:"next"`
	Last     *time.Time  `json:"last"`
	Kept     bool        `json:"kept"`
	Paused   bool        `json:"paused"`
	Orphaned bool        `json:"orphaned"`
	Damaged  bool        `json:"damaged"`
	Moments  []time.Time `json:"moments,omitempty"`
}

// Empty returns an empty list for nil, so that JSON has [] and not null.
func Empty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// QueueOf makes the record of a queue. runners is the number of live runners that serve it.
func QueueOf(s storage.Stats, runners int) Queue {
	declined := make([]Kind, len(s.Declined))
	for i, k := range s.Declined {
		declined[i] = Kind(k)
	}
	return Queue{
		Queue: s.Queue, Sizes: sizesOf(&s), Declined: declined, Oldest: s.Oldest.Seconds(),
		Paused: s.Paused, PausedUntil: survey.Moment(s.PausedUntil), Runners: runners, Totals: Totals(s.Totals),
		Limit: queueLimitOf(&s), Partitioned: s.Partitioned,
	}
}

// RunnerOf makes the record of a runner.
func RunnerOf(r storage.RunnerInfo) Runner {
	running := make([]Running, len(r.Running))
	for i, task := range r.Running {
		running[i] = Running{Ref: task.Ref.String(), Kind: task.Kind, Since: task.Since.UTC()}
	}
	undecodable := make([]Undecodable, len(r.Undecodable))
	for i, k := range r.Undecodable {
		undecodable[i] = Undecodable{k.Queue, k.Kind, survey.Moment(k.Since), k.Tasks, k.Reason}
	}
	slots := make([]QueueSlots, len(r.Slots))
	for i, q := range r.Slots {
		slots[i] = QueueSlots(q)
	}
	limits := make([]RunnerLimit, len(r.Limits))
	for i, l := range r.Limits {
		limits[i] = RunnerLimit{l.Queue, limitOf(l.Limit)}
	}
	return Runner{
		ID: r.ID, Host: r.Host, PID: r.PID, Version: r.Version, Queues: Empty(r.Queues), Kinds: Empty(r.Kinds),
		Concurrency: r.Concurrency, Busy: r.InUse(), Started: r.Started.UTC(), Seen: r.Seen.UTC(), Running: running,
		Undecodable: undecodable, Slots: slots, Limits: limits,
	}
}

// Stats is the sum over several queues, except that Oldest is the maximum over them.
type Stats struct {
	Sum    storage.Stats `json:"-"`
	Time   time.Time     `json:"time"`
	Queues int           `json:"queues"`
	Sizes
	Oldest float64 `json:"oldest_seconds"`
	Totals Totals  `json:"totals"`
	// PerSecond are the rates since the previous line; null in the first line.
	PerSecond *Rates `json:"per_second"`
}

// Rates are rates per second, as in [ledger.Flow].
type Rates struct {
	Enqueued  float64 `json:"enqueued"`
	Completed float64 `json:"completed"`
	Failed    float64 `json:"failed"`
}

// Add adds the numbers of a queue.
func (s *Stats) Add(q storage.Stats) {
	s.Sum.Add(&q)
	s.Sizes, s.Totals, s.Oldest = sizesOf(&s.Sum), Totals(s.Sum.Totals), s.Sum.Oldest.Seconds()
}

// Since sets PerSecond to the rates since an earlier sample. The rate of a total that shrank, because a queue
// was removed, is 0.
func (s *Stats) Since(before Stats) {
	seconds := s.Time.Sub(before.Time).Seconds()
	if seconds <= 0 {
		return
	}
	now, then := storage.Totals(s.Totals), storage.Totals(before.Totals)
	in, done, failed := ledger.FlowOf(&now).Since(ledger.FlowOf(&then)).PerSecond(seconds)
	s.PerSecond = &Rates{Enqueued: in, Completed: done, Failed: failed}
}

// Import is the report of an import, or of its dry run.
type Import struct {
	// Moved counts the moved tasks by type.
	Moved map[string]int64 `json:"moved"`
	// Left lists the tasks that stay because of their type or their content.
	Left []Left `json:"left"`
	// Stays counts the tasks that the import does not examine, by state.
	Stays map[string]int64 `json:"stays"`
}

// Left is the number of tasks of a type that stay where they are, and the reason.
type Left struct {
	Type   string `json:"type"`
	Reason string `json:"reason"`
	Tasks  int64  `json:"tasks"`
}

// Task is the record of a task.
type Task struct {
	Ref         string            `json:"ref"`
	Queue       string            `json:"queue"`
	ID          string            `json:"id"`
	Kind        string            `json:"kind"`
	State       string            `json:"state"`
	Version     int64             `json:"version"`
	Priority    int               `json:"priority"`
	Partition   string            `json:"partition"`
	Cost        int               `json:"cost"`
	Retries     int               `json:"retries"`
	MaxRetries  int               `json:"max_retries"`
	Crashes     int               `json:"crashes"`
	CrashLimit  int               `json:"crash_limit"`
	Snoozes     int               `json:"snoozes"`
	Created     *time.Time        `json:"created"`
	Due         *time.Time        `json:"due"`
	Started     *time.Time        `json:"started"`
	LeaseUntil  *time.Time        `json:"lease_until"`
	Ended       *time.Time        `json:"ended"`
	Expires     *time.Time        `json:"expires"`
	Declined    *time.Time        `json:"declined"`
	Deadline    *time.Time        `json:"deadline"`
	Tick        *time.Time        `json:"tick"`
	Timeout     float64           `json:"timeout_seconds"`
	KeepFor     float64           `json:"keep_seconds"`
	Runner      string            `json:"runner"`
	CancelAsked bool              `json:"cancel_asked"`
	PassedOver  string            `json:"passed_over"`
	Unique      bool              `json:"unique"`
	Reason      string            `json:"reason"`
	Error       string            `json:"error"`
	Encoding    string            `json:"encoding"`
	Params      json.RawMessage   `json:"params"`
	Headers     map[string]string `json:"headers"`
	Attempts    []Attempt         `json:"attempts"`
	// A list leaves out the fields below.
	Stack      string          `json:"stack,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Progress   json.RawMessage `json:"progress,omitempty"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
	Steps      []payload.Step  `json:"steps,omitempty"`
	// StepsProblem is why the steps cannot be read. The checkpoint cannot be read then either.
	StepsProblem string `json:"steps_problem,omitempty"`
}

// Attempt is an attempt of a task, or a requeue between two attempts.
type Attempt struct {
	At      time.Time `json:"at"`
	Took    float64   `json:"took_seconds"`
	Outcome string    `json:"outcome"`
	Runner  string    `json:"runner"`
	Error   string    `json:"error"`
}

// TaskOf makes the record of a task. Damaged parameters are null.
func TaskOf(t storage.Task) Task {
	attempts := make([]Attempt, len(t.Attempts))
	for i, a := range t.Attempts {
		attempts[i] = Attempt{
			At: a.At.UTC(), Took: a.Took().Seconds(), Outcome: a.Outcome, Runner: a.Runner,
			Error: a.Error,
		}
	}
	headers, started := t.Headers, t.StartedAt()
	if headers == nil {
		headers = map[string]string{}
	}
	if a, ok := t.Success(); ok {
		started = a.Claimed
	}
	steps, problem := payload.Steps(t, nil)
	damaged := ""
	if problem != nil {
		damaged = problem.Error()
	}
	return Task{
		Steps: steps, StepsProblem: damaged,
		Ref: t.Ref.String(), Queue: t.Queue, ID: t.ID, Kind: t.Kind, State: string(t.State), Version: t.Version,
		Priority: t.Priority, Partition: t.Partition, Cost: t.Cost.N(),
		Retries: t.Retries, MaxRetries: t.MaxRetries, Crashes: t.Crashes, CrashLimit: t.CrashLimit,
		Snoozes: t.Snoozes, Created: survey.Moment(t.Created), Due: survey.Moment(t.Due),
		Started:    survey.Moment(started),
		LeaseUntil: survey.Moment(t.LeaseUntil), Ended: survey.Moment(t.Ended), Expires: survey.Moment(t.Expires),
		Declined: survey.Moment(t.Declined),
		Deadline: survey.Moment(t.Deadline()), Tick: survey.Moment(t.Tick()), Timeout: timeoutSeconds(t.Timeout),
		KeepFor: t.Keep.For.Seconds(),
		Runner:  RanBy(t), CancelAsked: t.CancelAsked, PassedOver: t.PassedOver, Unique: t.Unique.Key != "",
		Reason: payload.Reason(t), Error: t.LastError(), Encoding: t.Encoding,
		Params: Value(payload.Params(t)), Headers: headers,
		Attempts: attempts, Stack: t.Stack, Result: Value(payload.Result(t)), Progress: Value(payload.Progress(t)),
		Checkpoint: Value(payload.Checkpoint(t)),
	}
}

// RanBy returns the runner that runs a task, or that completed it; "" if there is none.
func RanBy(t storage.Task) string {
	if a, ok := t.Success(); ok {
		return a.Runner
	}
	return t.Runner
}

// timeoutSeconds returns the timeout of a task in seconds: 0 for that of its runner, -1 for none.
func timeoutSeconds(d time.Duration) float64 {
	if d == storage.NoTimeout {
		return -1
	}
	return d.Seconds()
}

// Value returns a value of a task as JSON, or nil if there is no value or the value is damaged.
func Value(part payload.Part) json.RawMessage {
	if len(part.Data) == 0 {
		return nil
	}
	text, err := part.JSON()
	if err != nil {
		return nil
	}
	return text
}

// Load is the outcome of a finished load.
type Load struct {
	Rows     int64 `json:"rows"`     // of the file, but for blank lines
	Before   int64 `json:"before"`   // of them earlier runs had read
	Loaded   int64 `json:"loaded"`   // tasks that this run enqueued
	Existing int64 `json:"existing"` // tasks that were there already
	Rejected int64 `json:"rejected"` // rows in the file of --reject
}

// Action is the outcome of a command that changes tasks.
type Action struct {
	Matched int64          `json:"matched"`
	Done    int64          `json:"done"`
	Asked   int64          `json:"asked"` // of a cancel: running tasks that are asked to stop
	Changed int64          `json:"changed"`
	Gone    int64          `json:"gone"`
	Kept    int64          `json:"kept"`
	DryRun  bool           `json:"dry_run"`
	More    bool           `json:"more"`   // with --dry-run: Matched is a lower bound
	Canary  string         `json:"canary"` // the ref of the task that was requeued first, "" without one
	Reasons []ActionReason `json:"reasons"`
}

// ActionReason is the reason why a task could not be changed.
type ActionReason struct {
	Ref    string `json:"ref"`
	Reason string `json:"reason"`
}

// ActionOf makes the record of an action.
func ActionOf(r bulk.Result) Action {
	action := Action{
		Matched: r.Matched, Done: r.Done, Asked: r.Asked, Changed: r.Changed, Gone: r.Gone, Kept: r.Kept,
		Reasons: reasonsOf(r.Reasons),
	}
	if r.Canary.ID != "" {
		action.Canary = r.Canary.String()
	}
	return action
}

// ActionTo makes the record of an action from its preview.
func ActionTo(p bulk.Preview) Action {
	return Action{
		Matched: p.Count + p.Gone + p.Kept, Gone: p.Gone, Kept: p.Kept, More: p.More,
		Reasons: reasonsOf(p.Reasons),
	}
}

func reasonsOf(kept []bulk.Reason) []ActionReason {
	reasons := make([]ActionReason, len(kept))
	for i, reason := range kept {
		reasons[i] = ActionReason{Ref: reason.Ref.String(), Reason: reason.Text}
	}
	return reasons
}

// Restored is the outcome of a restore from a backup.
type Restored struct {
	Matched    int64          `json:"matched"`
	Enqueued   int64          `json:"enqueued"`
	Existing   int64          `json:"existing"`
	Refused    int64          `json:"refused"`
	NotDeleted int64          `json:"not_deleted"`
	DryRun     bool           `json:"dry_run"`
	Reasons    []ActionReason `json:"reasons"`
}

// Cause is a group of tasks that died of one cause.
type Cause struct {
	Cause  string           `json:"cause"`
	Tasks  int64            `json:"tasks"`
	Error  string           `json:"error"`
	Kinds  map[string]int64 `json:"kinds"`
	Queues map[string]int64 `json:"queues"`
	First  *time.Time       `json:"first"`
	Last   *time.Time       `json:"last"`
	Sample string           `json:"sample"`
}

// CauseOf makes the record of a cause.
func CauseOf(g scan.Group) Cause {
	return Cause{
		Cause: g.ID, Tasks: g.Tasks, Error: g.LastError(), Kinds: g.Kinds, Queues: g.Queues,
		First: survey.Moment(g.First), Last: survey.Moment(g.Last), Sample: g.Sample.Ref.String(),
	}
}

// Tally is the number of tasks that have a value of a property.
type Tally struct {
	By     string  `json:"by"`
	Value  *string `json:"value"` // null for the tasks without the property
	Tasks  int64   `json:"tasks"`
	Filter string  `json:"filter"` // chooses these tasks
}

// Entry is an entry of the audit: an action of a person.
type Entry struct {
	ID      string     `json:"id"`
	At      time.Time  `json:"at"`
	Ended   *time.Time `json:"ended"`
	Who     string     `json:"who"`
	Role    string     `json:"role"`
	Via     string     `json:"via"`
	Action  string     `json:"action"`
	Queue   string     `json:"queue"`
	Filter  string     `json:"filter"`
	Tasks   []string   `json:"tasks"`
	Note    string     `json:"note"`
	Outcome string     `json:"outcome"`
	Count   int        `json:"count"`
	Stopped string     `json:"stopped"`
	Error   string     `json:"error"`
}

// EntryOf makes the record of an entry of the audit.
func EntryOf(e ledger.Entry) Entry {
	return Entry{
		ID: e.ID, At: e.At.UTC(), Ended: survey.Moment(e.Ended), Who: e.Who, Role: e.Role, Via: e.Via,
		Action: e.Action,
		Queue:  e.Queue, Filter: e.Filter, Tasks: Empty(e.IDs), Note: e.Note, Outcome: e.Outcome, Count: e.Count,
		Stopped: e.Stopped, Error: e.Error,
	}
}

// History is the activity of a queue in a span of time. Waiting and Oldest are the maxima in the span.
type History struct {
	Queue    string  `json:"queue"`
	Enqueued int64   `json:"enqueued"`
	Done     int64   `json:"done"`
	Failed   int64   `json:"failed"`
	Dead     int64   `json:"dead"`
	Waiting  int64   `json:"waiting"`
	Oldest   float64 `json:"oldest_seconds"`
}

// HistoryOf makes the record of a queue's totals.
func HistoryOf(t ledger.Totals) History {
	return History{
		Queue: t.Queue, Enqueued: t.Enqueued, Done: t.Done, Failed: t.Failed, Dead: t.Dead, Waiting: t.Waiting,
		Oldest: t.Oldest.Seconds(),
	}
}

// Added is a task that was enqueued, or that existed already.
type Added struct {
	Ref      string `json:"ref"`
	State    string `json:"state"`
	Existing bool   `json:"existing"`
}

// Version is the version of the command midge.
type Version struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Revision string `json:"revision"`
	System   string `json:"system"`
}

// User is a user of the dashboard.
type User struct {
	User string `json:"user"`
	Role string `json:"role"`
}

// Why explains the state of a task.
type Why struct {
	Ref        string     `json:"ref"`
	Kind       string     `json:"kind"`
	State      string     `json:"state"`
	Cause      string     `json:"cause"`
	Text       string     `json:"text"`
	Next       string     `json:"next"`
	Since      *time.Time `json:"since"`
	Until      *time.Time `json:"until"`
	Runner     string     `json:"runner"`
	Host       string     `json:"host"`
	PID        int        `json:"pid"`
	RunnerGone bool       `json:"runner_gone"`
	Runners    int        `json:"runners"`
	Able       int        `json:"able"`
	Slots      int        `json:"slots"`
	Free       int        `json:"free"`
	Position   int64      `json:"position"`
	Of         int64      `json:"of"`
	ETA        float64    `json:"eta_seconds"`
	Reason     string     `json:"reason"`
	Error      string     `json:"error"`
}

// WhyOf makes the record of a verdict. text is its sentence, and next the command that a user may type next,
// "" for none.
func WhyOf(v storage.Verdict, text, next string) Why {
	return Why{
		Ref: v.Ref.String(), Kind: v.Kind, State: string(v.State), Cause: string(v.Cause), Text: text,
		Next: next, Since: survey.Moment(v.Since), Until: survey.Moment(v.Until), Runner: v.Runner, Host: v.Host,
		PID: v.PID, RunnerGone: v.RunnerGone, Runners: v.Runners, Able: v.Able, Slots: v.Slots, Free: v.Free,
		Position: v.Position, Of: v.Of, ETA: v.ETA.Seconds(), Reason: v.Reason, Error: v.Error,
	}
}
