package storage

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// CheckTxs is the validation that every storage's Apply does before any I/O. It
// returns an *InvalidError that names the first fault. The table of [Change] lists which
// operations of a change go together.
func CheckTxs(limits Limits, txs []Tx) error {
	limits = limits.WithDefaults()
	for i := range txs {
		if err := checkTx(limits, &txs[i]); err != nil {
			return err
		}
	}
	return nil
}

// Ops returns the number of operations in the Tx.
func (tx *Tx) Ops() int {
	return len(tx.Inserts) + len(tx.Changes) + len(tx.Deletes) + len(tx.Depends) + len(tx.Settles)
}

// Bytes returns about the number of bytes that the Tx carries: payloads, headers, results,
// errors and stacks.
func (tx *Tx) Bytes() int {
	n := 0
	for i := range tx.Inserts {
		n += len(tx.Inserts[i].Payload) + headerBytes(tx.Inserts[i].Headers)
	}
	for i := range tx.Changes {
		n += len(tx.Changes[i].Payload) + headerBytes(tx.Changes[i].Headers)
	}
	for i := range tx.Settles {
		s := &tx.Settles[i]
		n += len(s.Result) + min(len(s.Error), MaxText) + min(len(s.Stack), MaxText)
	}
	return n
}

// Queues returns the queues that the Tx names, each once, in order of appearance.
func (tx *Tx) Queues() []string {
	var names []string
	add := func(queue string) {
		if queue == "" {
			return
		}
		if !slices.Contains(names, queue) {
			names = append(names, queue)
		}
	}
	for i := range tx.Settles {
		add(tx.Settles[i].Fence.Queue)
	}
	for i := range tx.Inserts {
		add(tx.Inserts[i].Ref.Queue)
	}
	for i := range tx.Changes {
		add(tx.Changes[i].Ref.Queue)
		add(tx.Changes[i].Queue)
	}
	for i := range tx.Deletes {
		add(tx.Deletes[i].Ref.Queue)
	}
	for i := range tx.Depends {
		add(tx.Depends[i].Ref.Queue)
	}
	return names
}

func checkTx(limits Limits, tx *Tx) error {
	ops := tx.Ops()
	if ops == 0 || ops > MaxTxOps {
		return Invalid("transaction", fmt.Sprintf("of %d operations", ops), "1 to %d", MaxTxOps)
	}
	if n := tx.Bytes(); n > MaxTxBytes && ops > 1 {
		return Invalid("transaction", fmt.Sprintf("of %d bytes", n),
			"at most %d bytes, or one operation", MaxTxBytes)
	}
	var named naming
	if ops > 1 {
		named = make(naming, ops)
	}
	for i := range tx.Deletes {
		d := &tx.Deletes[i]
		if err := checkVersioned("Delete", d.Ref, d.Version, named.once); err != nil {
			return err
		}
		if named != nil {
			named[d.Ref] = true
		}
	}
	for i := range tx.Inserts {
		in := &tx.Inserts[i]
		once := named.once
		if in.Cursor != nil && named[in.Ref] {
			once = named.replaced
		}
		if err := checkInsert(limits, in, once); err != nil {
			return err
		}
	}
	for i := range tx.Changes {
		if err := checkChange(limits, &tx.Changes[i], named.once); err != nil {
			return err
		}
	}
	for i := range tx.Depends {
		if err := checkVersioned("Depend", tx.Depends[i].Ref, tx.Depends[i].Version, named.once); err != nil {
			return err
		}
	}
	for i := range tx.Settles {
		if err := checkSettle(limits, &tx.Settles[i], named.once); err != nil {
			return err
		}
	}
	return nil
}

// naming is the set of refs that a Tx has named so far, with true for each record that it
// deletes. It is nil for a Tx of a single operation, which names nothing twice.
type naming map[Ref]bool

// once checks a ref, and that the Tx names it for the first time.
func (n naming) once(ref Ref) error {
	if err := CheckRef(ref); err != nil {
		return err
	}
	if n == nil {
		return nil
	}
	if _, ok := n[ref]; ok {
		return Invalid("transaction", "naming "+ref.String()+" twice", "each task once")
	}
	n[ref] = false
	return nil
}

// replaced notes that a deleted cursor is inserted anew.
func (n naming) replaced(ref Ref) error {
	n[ref] = false
	return nil
}

func checkVersioned(what string, ref Ref, version int64, once func(Ref) error) error {
	if version < 1 {
		return Invalid(what+".Version", version, "the version that was read")
	}
	return once(ref)
}

// CheckInsert is the validation that CheckTxs makes of each insert, for callers that report a
// bad insert before they call a storage.
func CheckInsert(limits Limits, in *Insert) error {
	return checkInsert(limits.WithDefaults(), in, CheckRef)
}

func checkInsert(limits Limits, in *Insert, once func(Ref) error) error {
	if err := once(in.Ref); err != nil {
		return err
	}
	if isCursor := strings.HasPrefix(in.Ref.ID, CursorPrefix); isCursor != (in.Cursor != nil) {
		return Invalid("task id", in.Ref.ID, "prefix %q on cursors, and on them alone", CursorPrefix)
	}
	if in.Cursor != nil {
		if in.Delay != 0 || !in.At.IsZero() || in.Unique != (Unique{}) {
			return Invalid("cursor "+in.Ref.String(), "with Delay, At or Unique", "none of them")
		}
		if err := checkCursor(in.Cursor); err != nil {
			return err
		}
	}
	if err := CheckName("kind", in.Kind); err != nil {
		return err
	}
	if err := CheckName("encoding", in.Encoding); err != nil {
		return err
	}
	if err := checkCost("Insert.Cost", in.Cost); err != nil {
		return err
	}
	if in.Partition != "" {
		if err := CheckPartition(in.Partition); err != nil {
			return err
		}
	}
	if in.Delay != 0 && !in.At.IsZero() {
		return Invalid("insert "+in.Ref.String(), "with Delay and At", "one of them")
	}
	if in.OnConflict != "" && in.OnConflict != Refuse && in.OnConflict != Skip {
		return Invalid("Insert.OnConflict", string(in.OnConflict), "%q or %q", Refuse, Skip)
	}
	return firstError(
		checkBytes("payload", in.Payload, limits.MaxPayload),
		checkHeaders(in.Headers),
		checkPriority(in.Priority),
		checkRange("Insert.MaxRetries", in.MaxRetries, 0, MaxLimit),
		checkRange("Insert.CrashLimit", in.CrashLimit, 1, MaxLimit),
		checkDuration("Insert.Delay", in.Delay),
		checkTime("Insert.At", in.At),
		checkSpan("Insert.Timeout", in.Timeout),
		checkSpan("Insert.Keep.For", in.Keep.For),
		checkUnique(in.Unique),
	)
}

// endings are the values that Settle.As may have.
var endings = [...]string{
	AttemptFailed, AttemptTimedOut, AttemptPanicked, AttemptDiscarded, AttemptExpired, AttemptUndecodable,
	AttemptCancelled,
}

func checkSettle(limits Limits, s *Settle, once func(Ref) error) error {
	switch s.Outcome {
	case Complete, Fail, Snooze, Release, Bury, Cancel, Decline:
	default:
		return Invalid("Settle.Outcome", string(s.Outcome),
			"complete, fail, snooze, release, bury, cancel or decline")
	}
	if s.Result != nil && s.Outcome != Complete {
		return Invalid("Settle.Result", "with outcome "+string(s.Outcome), "outcome complete")
	}
	if s.As != "" && (s.Attempt() == "" || !slices.Contains(endings[:], s.As)) {
		return Invalid("Settle.As", s.As+" with outcome "+string(s.Outcome),
			"one of the constants from AttemptFailed to AttemptCancelled, with outcome fail, bury or cancel")
	}
	if s.Delay != 0 && s.Outcome != Fail && s.Outcome != Snooze && s.Outcome != Release {
		return Invalid("Settle.Delay", "with outcome "+string(s.Outcome), "outcome fail, snooze or release")
	}
	return firstError(
		checkVersioned("Settle.Fence", s.Fence.Ref, s.Fence.Version, once),
		checkDuration("Settle.Delay", s.Delay),
		checkBytes("result", s.Result, limits.MaxPayload),
	)
}

func checkCursor(c *Cursor) error {
	if n := len(c.Declaration); n > MaxHeaderBytes {
		return Invalid("Cursor.Declaration", fmt.Sprintf("of %d bytes", n), "at most %d bytes", MaxHeaderBytes)
	}
	return firstError(
		checkText("Cursor.Declaration", c.Declaration),
		checkTime("Cursor.Next", c.Next),
		checkTime("Cursor.Last", c.Last),
	)
}

// CheckCall is the validation of a Call that every storage does before any I/O. Apply and
// Configure call it themselves; for Claim and Extend, CheckClaim and CheckExtend do.
func CheckCall(call Call) error {
	opened := call.Lane.Opened
	switch {
	case call == Call{}:
		return nil
	case call.Seq == 0 || call.Seq > MaxSeq:
		return Invalid("Call.Seq", call.Seq, "1 to %d, or the zero Call", uint64(MaxSeq))
	case call.Lane.ID == [16]byte{}:
		return Invalid("Lane.ID", "of zeros", "128 random bits")
	case opened.UnixMicro() <= 0:
		return Invalid("Lane.Opened", opened, "the storage's time")
	}
	return checkTime("Lane.Opened", opened)
}

// CheckWait is the validation that every storage's Wait does before any I/O.
func CheckWait(req *WaitRequest) error { return checkNames("WaitRequest.Queues", req.Names()) }

// checkNames checks the queues that a request names.
func checkNames(what string, queues []string) error {
	if len(queues) == 0 || len(queues) > MaxNames {
		return Invalid(what, fmt.Sprintf("of %d names", len(queues)), "1 to %d", MaxNames)
	}
	for _, name := range queues {
		if err := CheckName("queue name", name); err != nil {
			return err
		}
	}
	return nil
}

// CheckClaim is the validation that every storage's Claim does before any I/O.
func CheckClaim(req *ClaimRequest) error {
	if err := CheckName("runner id", req.Runner); err != nil {
		return err
	}
	if len(req.Queues) == 0 || len(req.Queues) > MaxNames {
		return Invalid("ClaimRequest.Queues", fmt.Sprintf("of %d names", len(req.Queues)), "1 to %d", MaxNames)
	}
	seen := make(map[string]struct{}, len(req.Queues))
	for _, q := range req.Queues {
		if err := CheckName("queue name", q.Name); err != nil {
			return err
		}
		if _, ok := seen[q.Name]; ok {
			return Invalid("ClaimRequest.Queues", q.Name+" twice", "each queue once")
		}
		seen[q.Name] = struct{}{}
		if q.Max < MaxFull {
			return Invalid("ClaimQueue.Max", q.Max, "a number of tasks, 0, MaxNone or MaxFull")
		}
	}
	if err := firstError(
		CheckCall(req.Call),
		checkKinds("ClaimRequest.Kinds", req.Kinds),
		checkRange("ClaimRequest.Start", req.Start, 0, MaxClaim),
		checkRange("ClaimRequest.Ahead", req.Ahead, 0, MaxClaim-req.Start),
		checkTime("ClaimRequest.RecoverBefore", req.RecoverBefore),
	); err != nil || req.Most() == 0 {
		return err
	}
	if req.Token == (Token{}) {
		return Invalid("ClaimRequest.Token", "of zeros", "128 random bits")
	}
	if req.Lease < MinLease || req.Lease > MaxDelay {
		return Invalid("ClaimRequest.Lease", req.Lease, "%v to %v", MinLease, MaxDelay)
	}
	return nil
}

// checkKinds checks the kinds that a request names.
func checkKinds(what string, kinds []string) error {
	if len(kinds) > MaxKinds {
		return Invalid(what, fmt.Sprintf("of %d names", len(kinds)), "at most %d", MaxKinds)
	}
	for _, name := range kinds {
		if err := CheckName("kind", name); err != nil {
			return err
		}
	}
	return nil
}

// CheckExtend is the validation that every storage's Extend does before any I/O. It also
// cleans the texts of the heartbeat, and makes empty vitals and schedules nil.
func CheckExtend(limits Limits, req *ExtendRequest) error {
	limits = limits.WithDefaults()
	if err := CheckCall(req.Call); err != nil {
		return err
	}
	if req.Runner.ID != "" {
		if err := checkRunner(&req.Runner); err != nil {
			return err
		}
	}
	seen := make(map[Ref]struct{}, len(req.Leases))
	once := func(ref Ref) error {
		if _, ok := seen[ref]; ok {
			return Invalid("ExtendRequest.Leases", ref.String()+" twice", "each task once")
		}
		seen[ref] = struct{}{}
		return CheckRef(ref)
	}
	for i := range req.Leases {
		e := &req.Leases[i]
		if e.For != 0 && (e.For < MinLease || e.For > MaxDelay) {
			return Invalid("Extension.For", e.For, "0, or %v to %v", MinLease, MaxDelay)
		}
		if err := firstError(
			checkVersioned("Extension.Fence", e.Fence.Ref, e.Fence.Version, once),
			checkBytes("progress", e.Progress, limits.MaxPayload),
			checkBytes("checkpoint", e.Checkpoint, limits.MaxPayload),
		); err != nil {
			return err
		}
	}
	return nil
}

func checkRunner(r *RunnerInfo) error {
	if err := CheckName("runner id", r.ID); err != nil {
		return err
	}
	r.Host, r.Version = CleanText(r.Host, MaxName), CleanText(r.Version, MaxName)
	if len(r.Queues) > 0 {
		if err := checkNames("RunnerInfo.Queues", r.Queues); err != nil {
			return err
		}
	}
	if err := checkKinds("RunnerInfo.Kinds", r.Kinds); err != nil {
		return err
	}
	if len(r.Running) > MaxRunning {
		return Invalid("RunnerInfo.Running", fmt.Sprintf("of %d tasks", len(r.Running)), "at most %d", MaxRunning)
	}
	if len(r.Slots) > MaxNames {
		return Invalid("RunnerInfo.Slots", fmt.Sprintf("of %d queues", len(r.Slots)), "at most %d", MaxNames)
	}
	if len(r.Limits) > MaxNames {
		return Invalid("RunnerInfo.Limits", fmt.Sprintf("of %d queues", len(r.Limits)), "at most %d", MaxNames)
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		err := firstError(CheckName("queue name", l.Queue), CheckLimit("RunnerInfo.Limits", l.Limit))
		if err != nil {
			return err
		}
	}
	for i := range r.Slots {
		if err := CheckName("queue name", r.Slots[i].Queue); err != nil {
			return err
		}
	}
	if len(r.Undecodable) > MaxTroubles {
		return Invalid("RunnerInfo.Undecodable", fmt.Sprintf("of %d kinds", len(r.Undecodable)),
			"at most %d", MaxTroubles)
	}
	r.Undecodable = slices.Clone(r.Undecodable)
	for i := range r.Undecodable {
		of := &r.Undecodable[i]
		if err := firstError(CheckName("queue name", of.Queue), CheckName("kind", of.Kind)); err != nil {
			return err
		}
		of.Reason = CleanText(of.Reason, MaxAttemptError)
	}
	if !r.Leaving && (r.For < time.Second || r.For > MaxDelay) {
		return Invalid("RunnerInfo.For", r.For, "1s to %v", MaxDelay)
	}
	if len(r.Schedules) == 0 {
		r.Schedules = nil
	}
	if len(r.Vitals) == 0 {
		r.Vitals = nil
	}
	return firstError(checkBytes("RunnerInfo.Vitals", r.Vitals, MaxVitals), checkMoments(r))
}

// checkMoments checks the times of a heartbeat.
func checkMoments(r *RunnerInfo) error {
	err := checkTime("RunnerInfo.Started", r.Started)
	for i := range r.Running {
		err = firstError(err, checkTime("Running.Since", r.Running[i].Since),
			checkTime("Running.Unstopped", r.Running[i].Unstopped))
	}
	for i := range r.Undecodable {
		err = firstError(err, checkTime("KindTrouble.Since", r.Undecodable[i].Since),
			checkTime("KindTrouble.Last", r.Undecodable[i].Last))
	}
	return err
}

// CheckTasks checks a query and fills its Limit.
func CheckTasks(q *TasksQuery) error {
	if err := CheckName("queue name", q.Queue); err != nil {
		return err
	}
	if !q.State.Valid() {
		return Invalid("TasksQuery.State", string(q.State), "one of %v", States())
	}
	if q.Newest && !q.State.Ended() {
		return Invalid("TasksQuery.Newest", q.State, "a state that has ended: completed, dead or cancelled")
	}
	if q.Partition != "" {
		if q.State != Waiting {
			return Invalid("TasksQuery.Partition", "with the state "+string(q.State), "the state waiting")
		}
		if err := CheckPartition(q.Partition); err != nil {
			return err
		}
	}
	if q.Limit == 0 {
		q.Limit = 50
	}
	return firstError(
		checkRange("TasksQuery.Limit", q.Limit, 1, MaxPage),
		checkBytes("TasksQuery.After", []byte(q.After), 3*MaxName),
		checkText("TasksQuery.After", q.After),
	)
}

// CheckQueues checks a query and fills its Limit.
func CheckQueues(q *QueuesQuery) error {
	if q.Limit == 0 {
		q.Limit = MaxNames
	}
	if q.Prefix != "" {
		if err := CheckName("queue prefix", q.Prefix); err != nil {
			return err
		}
	}
	return firstError(
		checkRange("QueuesQuery.Limit", q.Limit, 1, MaxNames),
		checkBytes("QueuesQuery.After", []byte(q.After), 2*MaxName),
		checkText("QueuesQuery.After", q.After),
	)
}

// CheckSettings checks the settings of a Configure.
func CheckSettings(queue string, s *Settings) error {
	if err := CheckName("queue name", queue); err != nil {
		return err
	}
	if s.Partition != "" {
		if err := CheckPartition(s.Partition); err != nil {
			return err
		}
		alone := Settings{Partition: s.Partition, Pause: s.Pause, Limit: s.Limit}
		if (s.Pause == nil) == (s.Limit == nil) || *s != alone {
			return Invalid("Settings.Partition", "with other changes", "Pause or Limit alone")
		}
		if l := s.Limit; l != nil && l.Limit != (Limit{Partition: l.Limit.Partition}) {
			return Invalid("Settings.Limit", l.Limit.String(), "Partition alone, for a partition")
		}
	}
	changes := s.Pause != nil || s.Limit != nil || s.Declared != nil
	switch {
	case s.Remove && (changes || s.Create), s.Create && changes:
		return Invalid("Settings", "with Create or Remove and another change", "Create or Remove alone")
	case s.Remove, s.Create:
		return nil
	case !changes:
		return Invalid("Settings", "with nothing to change", "a setting, Create or Remove")
	}
	return firstError(checkPause(s.Pause), checkOperatorLimit(s.Limit), checkDeclaredLimit(s.Declared))
}

func checkPause(p *Pause) error {
	switch {
	case p == nil:
		return nil
	case p.For != 0 && !p.On:
		return Invalid("Pause.For", p.For, "On with it")
	}
	return checkSpan("Pause.For", p.For)
}

func checkUnique(u Unique) error {
	switch u.Mode {
	case "":
		if u.Key != "" || u.For != 0 {
			return Invalid("Unique.Mode", "", "%q or %q", UniqueLife, UniqueWindow)
		}
		return nil
	case UniqueLife:
		if u.For != 0 {
			return Invalid("Unique.For", u.For, "0 with mode %q", UniqueLife)
		}
	case UniqueWindow:
		if u.For < MinSpan || u.For > MaxDelay {
			return Invalid("Unique.For", u.For, "%v to %v", MinSpan, MaxDelay)
		}
	default:
		return Invalid("Unique.Mode", string(u.Mode), "%q or %q", UniqueLife, UniqueWindow)
	}
	if !isName(u.Key) {
		return Invalid("unique key", fmt.Sprintf("of %d bytes", len(u.Key)), wantName, MaxName)
	}
	return nil
}

func checkHeaders(h map[string]string) error {
	for k, v := range h {
		if k == "" {
			return Invalid("header name", k, "at least one character")
		}
		if err := checkText("header name", k); err != nil {
			return err
		}
		if !isText(v) {
			return Invalid("header "+k, fmt.Sprintf("of %d bytes", len(v)), wantText)
		}
	}
	if n := headerBytes(h); n > MaxHeaderBytes {
		return Invalid("headers", fmt.Sprintf("of %d bytes", n), "at most %d bytes", MaxHeaderBytes)
	}
	return nil
}

// headerBytes returns the bytes of headers. Those that [Change.CompleteHeaders] writes do not count, so that
// a task whose headers are full can be moved and rescheduled.
func headerBytes(h map[string]string) int {
	n := 0
	for k, v := range h {
		if own := k == QueueHeader || k == DueHeader; !own || len(v) > MaxName {
			n += len(k) + len(v)
		}
	}
	return n
}

func checkPriority(p int) error { return checkRange("priority", p, -MaxPriority, MaxPriority) }

func checkRange(what string, n, low, high int) error {
	if n < low || n > high {
		return Invalid(what, n, "%d to %d", low, high)
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
