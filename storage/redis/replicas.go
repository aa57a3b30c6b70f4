package redis

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

// ReplicasError reports that the master has carried a call out, and that fewer replicas than
// Config.WaitReplicas confirmed it in time: a failover may lose it. errors.Is(err, storage.ErrUnknown) holds.
// A repeat of the call on its lane carries nothing out twice, and waits again. A storage.Session repeats it
// until its patience ends; midge's Client.Repeat does so later.
type ReplicasError struct {
	// Want is Config.WaitReplicas.
	Want int
	// Have is how many replicas confirmed the call.
	Have int
}

// Error returns both numbers.
func (e *ReplicasError) Error() string {
	return fmt.Sprintf("%v: the master has the call, but %d of %d replicas confirmed it: a failover may lose it",
		storage.ErrUnknown, e.Have, e.Want)
}

// Unwrap returns storage.ErrUnknown.
func (e *ReplicasError) Unwrap() error { return storage.ErrUnknown }

// Answered reports that the storage is not away, although the outcome is unknown.
func (e *ReplicasError) Answered() bool { return true }

// waitTime is how long replicas have to confirm a pipeline. It is below the timeouts of connections.
const waitTime = time.Second

// waitFor returns how long WAIT may take under ctx, in milliseconds: so long that its reply comes before the
// deadline. It never returns 0, with which WAIT has no end.
func waitFor(ctx context.Context) int64 {
	most := waitTime
	if end, some := ctx.Deadline(); some {
		most = min(most, time.Until(end)*3/4)
	}
	return max(most.Milliseconds(), 1)
}

// replicated is pipeline with Config.WaitReplicas. WAIT ends the pipeline, because it has to be on the
// connection of the calls. On a Cluster the whole pipeline goes to one node, because go-redis would send WAIT
// to any of them. A redirection is not followed: it makes the outcome unknown, and the caller repeats.
func (s *Storage) replicated(ctx context.Context, invocations []*invocation) {
	select { // half of the connections are left to claims and extensions, which do not wait
	case s.waits <- struct{}{}:
		defer func() { <-s.waits }()
	case <-ctx.Done():
		for _, inv := range invocations {
			inv.cmd.SetErr(context.Cause(ctx))
		}
		return
	}
	key := s.keys.prefix + ":{" + invocations[0].queues[0] + "}:probe"
	open := s.client.Pipeline
	cluster, some := s.client.(*goredis.ClusterClient)
	if some {
		node, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			for _, inv := range invocations {
				inv.cmd.SetErr(err)
			}
			return
		}
		open = node.Pipeline
	}
	pipe := open()
	for _, inv := range invocations {
		_ = pipe.Process(ctx, inv.cmd)
	}
	write := s.scripts.wait.call(ctx, &sent{}, true, []any{key}, nil)
	wait := goredis.NewIntCmd(ctx, "wait", s.replicas, waitFor(ctx))
	_ = pipe.Process(ctx, write)
	_ = pipe.Process(ctx, wait)
	_, _ = pipe.Exec(ctx) // each command has its own error
	err := cmp.Or(write.Err(), wait.Err())
	switch have := int(wait.Val()); {
	case err != nil:
		err = fmt.Errorf("%w: %w", storage.ErrUnknown, err)
		if some {
			cluster.ReloadState(ctx)
		}
	case have < s.replicas:
		err = &ReplicasError{Want: s.replicas, Have: have}
	default:
		return
	}
	for _, inv := range invocations {
		if inv.cmd.Err() == nil {
			inv.cmd.SetVal(nil)
			inv.cmd.SetErr(err)
		}
	}
}

// poolOf returns how many connections a client has to a server at most.
func poolOf(client goredis.UniversalClient) int {
	switch c := client.(type) {
	case *goredis.Client:
		return c.Options().PoolSize
	case *goredis.ClusterClient:
		return c.Options().PoolSize
	}
	return 0
}

// takeReplicas takes the query parameter wait_replicas out of the URL: go-redis knows no such parameter.
func (c *Config) takeReplicas() error {
	at := strings.LastIndexByte(c.URL, '?') + 1
	if at == 0 {
		return nil
	}
	var kept []string
	for parameter := range strings.SplitSeq(c.URL[at:], "&") {
		value, is := strings.CutPrefix(parameter, "wait_replicas=")
		if !is {
			kept = append(kept, parameter)
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return c.badURL("a number of 0 or more for wait_replicas")
		}
		c.WaitReplicas = max(c.WaitReplicas, n)
	}
	c.URL = strings.TrimSuffix(c.URL[:at]+strings.Join(kept, "&"), "?")
	return nil
}
