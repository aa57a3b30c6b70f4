package redis

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// Extend extends leases, in one script call for each 200 leases of a slot, and then writes the
// runner's heartbeat.
func (s *Storage) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if err := storage.CheckExtend(s.limits, &req); err != nil {
		return storage.Extended{}, err
	}
	if err := s.mayWrite(); err != nil {
		return storage.Extended{}, wrap("extend", err)
	}
	extended, err := s.extend(ctx, &req)
	s.room.Wrote(err)
	if err != nil {
		return storage.Extended{}, wrap("extend", err)
	}
	return extended, nil
}

func (s *Storage) extend(ctx context.Context, req *storage.ExtendRequest) (storage.Extended, error) {
	var extended storage.Extended
	batches := s.batches(req.Leases)
	parts, errs := make([]storage.Extended, len(batches)), make([]error, len(batches))
	var all sync.WaitGroup
	// All batches go at the same time, so that one that fails or hangs does not let the leases of the
	// others expire.
	for i, b := range batches {
		all.Go(func() {
			if errs[i] = s.extendBatch(ctx, req, i, b, &parts[i]); divides(errs[i]) {
				errs[i] = s.extendEach(ctx, req, i, b, errs[i], &parts[i])
			}
		})
	}
	all.Wait()
	for i := range parts {
		extended.Lost = append(extended.Lost, parts[i].Lost...)
		extended.Locked = append(extended.Locked, parts[i].Locked...)
		extended.CancelAsked = append(extended.CancelAsked, parts[i].CancelAsked...)
		if parts[i].Now.After(extended.Now) {
			extended.Now = parts[i].Now
		}
	}
	if err := gravest(errs); err != nil {
		if slices.Contains(errs, nil) {
			err = inPart(err)
		}
		return extended, err
	}
	if req.Runner.ID != "" {
		heard, err := s.beat(ctx, req.Call, &req.Runner)
		if err != nil {
			if len(batches) > 0 {
				err = inPart(err)
			}
			return extended, err
		}
		if len(batches) == 0 {
			extended.Now = heard
		}
	}
	if extended.Now.IsZero() {
		now, err := s.time(ctx)
		if err != nil {
			return extended, inPart(translateRead(err))
		}
		extended.Now = moment(now.UnixMicro())
	}
	return extended, nil
}

// batches splits leases by slot, and into batches of at most extendOps leases and partBytes bytes.
func (s *Storage) batches(leases []storage.Extension) [][]storage.Extension {
	var all [][]storage.Extension
	type open struct{ at, bytes int }
	last := make(map[int]*open, 1)
	for i := range leases {
		e := &leases[i]
		slot, bytes := s.slot(e.Fence.Queue), len(e.Progress)+len(e.Checkpoint)
		o := last[slot]
		if o == nil || len(all[o.at]) == extendOps || o.bytes+bytes > partBytes {
			o = &open{at: len(all)}
			last[slot] = o
			all = append(all, nil)
		}
		o.bytes += bytes
		all[o.at] = append(all[o.at], *e)
	}
	return all
}

func (s *Storage) extendBatch(
	ctx context.Context, req *storage.ExtendRequest, i int, leases []storage.Extension, to *storage.Extended,
) error {
	var queues []string
	for i := range leases {
		if q := leases[i].Fence.Queue; !slices.Contains(queues, q) {
			queues = append(queues, q)
		}
	}
	var keys []any
	args := append(append([]any{len(queues)}, laneArgs(req.Call, i)...), len(leases))
	for _, q := range queues {
		keys = s.keys.of(q, keys)
		args = append(args, q)
	}
	for i := range leases {
		args = appendExtension(args, &leases[i])
	}
	list, err := s.scripts.extend.list(ctx, s.client, keys, args...)
	if err != nil {
		return err
	}
	v := values(list)
	letter, now := first(v.text()), v.number()
	if err := verdict(letter); err != nil {
		return err
	}
	return readMarks(now, v.text(), leases, to)
}

// readMarks reads the marks of scripts/extend.lua, a byte for each lease.
func readMarks(now int64, marks string, leases []storage.Extension, to *storage.Extended) error {
	if len(marks) != len(leases) {
		return fmt.Errorf("%w: an extension of other leases", storage.ErrUnknown)
	}
	to.Now = moment(now)
	for i := range leases {
		switch marks[i] {
		case 'l':
			to.Lost = append(to.Lost, leases[i].Fence.Ref)
		case 'c':
			to.CancelAsked = append(to.CancelAsked, leases[i].Fence.Ref)
		}
	}
	return nil
}

func appendExtension(args []any, e *storage.Extension) []any {
	marks := ""
	if e.Started {
		marks = "s"
	}
	if e.Progress != nil {
		marks += "p"
	}
	if e.Checkpoint != nil {
		marks += "c"
	}
	return append(args, e.Fence.Queue, e.Fence.ID, packFence(&e.Fence),
		strconv.FormatInt(e.For.Microseconds(), 10), marks, e.Progress, e.Checkpoint)
}

// beatKeys returns the keys of the heartbeats and of the times until which runners count as alive.
func (s *Storage) beatKeys() []any {
	return []any{s.keys.global("runners"), s.keys.global("alive")}
}

// beat writes a heartbeat, and returns the server's time of it. The identity of the call is kept with
// the heartbeat, so that a repeat is recognized.
func (s *Storage) beat(
	ctx context.Context, call storage.Call, info *storage.RunnerInfo,
) (heard time.Time, err error) {
	rest := *info
	rest.Schedules, rest.Vitals = nil, nil
	said, err := json.Marshal(&rest)
	if err != nil {
		return heard, storage.Invalid("RunnerInfo", info.ID, "what JSON can hold: %v", err)
	}
	var schedules []byte
	if info.Schedules != nil {
		schedules, _ = json.Marshal(info.Schedules) //nolint:errchkjson // texts
	}
	lasts := info.For.Microseconds()
	if info.Leaving {
		lasts = 0
	}
	id := identityOf(call, 0)
	list, err := s.scripts.beat.list(ctx, s.client, s.beatKeys(), info.ID, lasts, said,
		hex.EncodeToString([]byte(id.lane)), id.seq, id.opened, schedules, info.Vitals)
	if err != nil {
		return heard, err
	}
	v := values(list)
	letter := first(v.text())
	heard = moment(v.number())
	if v.bad {
		return heard, errReply
	}
	return heard, verdict(letter)
}

// Runners lists the runners whose heartbeat has not expired, by id.
func (s *Storage) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	if err := s.mayRead(); err != nil {
		return nil, wrap("runners", err)
	}
	list, err := s.scripts.runners.list(ctx, s.client, s.beatKeys(), "")
	if err != nil {
		return nil, wrap("runners", err)
	}
	var runners []storage.RunnerInfo
	v := values(list)
	for range len(list) / 3 {
		seen, said, _ := strings.Cut(v.text(), " ")
		schedules, vitals := v.text(), v.text()
		_, said, _ = strings.Cut(said, " ") // skips the identity of the call
		us, err := strconv.ParseInt(seen, 10, 64)
		var info storage.RunnerInfo
		if err != nil || json.Unmarshal([]byte(said), &info) != nil {
			continue // written by another version, or damaged; it will be replaced or expire
		}
		_ = json.Unmarshal([]byte(schedules), &info.Schedules) // none, or damaged: they count as none
		if vitals != "" {
			info.Vitals = []byte(vitals)
		}
		info.Seen = moment(us)
		rounded(&info)
		runners = append(runners, info)
	}
	slices.SortFunc(runners, func(a, b storage.RunnerInfo) int { return strings.Compare(a.ID, b.ID) })
	return runners, nil
}

// RunnerIDs lists the ids of the runners whose heartbeat has not expired, in order.
func (s *Storage) RunnerIDs(ctx context.Context) ([]string, error) {
	if err := s.mayRead(); err != nil {
		return nil, wrap("runner ids", err)
	}
	list, err := s.scripts.runners.list(ctx, s.client, s.beatKeys(), "ids")
	if err != nil {
		return nil, wrap("runner ids", err)
	}
	ids := make([]string, 0, len(list))
	for _, item := range list {
		if id, some := item.(string); some {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// rounded rounds the times of a heartbeat down to microseconds.
func rounded(info *storage.RunnerInfo) {
	info.For = info.For.Truncate(time.Microsecond)
	info.Started = moment(micros(info.Started))
	for i := range info.Running {
		info.Running[i].Since = moment(micros(info.Running[i].Since))
		info.Running[i].Unstopped = moment(micros(info.Running[i].Unstopped))
	}
	for i := range info.Undecodable {
		info.Undecodable[i].Since = moment(micros(info.Undecodable[i].Since))
		info.Undecodable[i].Last = moment(micros(info.Undecodable[i].Last))
	}
}
