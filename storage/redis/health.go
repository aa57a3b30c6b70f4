package redis

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

// examineEvery is how often the server is examined again: its settings may have changed,
// or another server may have taken its place.
const examineEvery = time.Minute

// health is the result of the last examination of the server.
type health struct {
	allowEviction bool

	mu      sync.Mutex // guards the fields below
	last    storage.Description
	refuses []string // the commands without which the storage cannot write
}

// refused returns the commands that the server refuses and without which the storage cannot write.
func (h *health) refused() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refuses
}

func (h *health) describe() storage.Description {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.last
	d.Warnings = slices.Clone(d.Warnings)
	return d
}

func (h *health) set(d storage.Description, refuses []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.refuses = d, refuses
}

// watch examines the server every examineEvery until ctx ends. An error becomes a warning of Describe.
func (s *Storage) watch(ctx context.Context) {
	tick := time.NewTicker(examineEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.reexamine(ctx)
		}
	}
}

func (s *Storage) reexamine(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	err := s.examine(ctx)
	if err == nil || ctx.Err() != nil {
		return
	}
	d := s.health.describe()
	d.Warnings = []string{err.Error()}
	s.health.set(d, s.health.refused())
}

// errUnfit is the error for a server that cannot store tasks safely.
var errUnfit = fmt.Errorf("%w: unfit server", storage.ErrRefused)

// examine reads the properties of the server, or of each master of a Cluster. A property that the
// server does not report becomes a warning. A property that makes it unfit is an error.
func (s *Storage) examine(ctx context.Context) error {
	var seen findings
	look := func(ctx context.Context, node goredis.UniversalClient, key string) {
		var f *findings
		err := patiently(func() (err error) {
			if f, err = s.look(ctx, node); err == nil && key != "" {
				err = s.permitted(ctx, node, key, f)
			}
			return err
		})
		seen.add(f, err)
	}
	if cluster, ok := s.client.(*goredis.ClusterClient); ok {
		if err := s.eachMaster(ctx, cluster, look); err != nil {
			return translateRead(err)
		}
	} else {
		look(ctx, s.client, s.keys.global("probe"))
	}
	if seen.err != nil {
		return seen.err
	}
	s.health.set(storage.Description{
		Storage: "redis " + seen.version, Durability: seen.durable, ReadOnly: seen.readOnly,
		Warnings: append(seen.warnings, s.damage(ctx)...),
	}, seen.refuses)
	return nil
}

// examinations is how often a server is examined while its connections end before it replies.
const examinations = 3

// patiently examines a server, and examines it again if a connection ended before the reply.
func patiently(examine func() error) (err error) {
	for range examinations {
		if err = examine(); !severed(err) {
			break
		}
	}
	return err
}

// eachMaster calls look for all masters of a Cluster at the same time, with a key of the master that does not
// exist, "" if it finds none.
func (s *Storage) eachMaster(
	ctx context.Context, cluster *goredis.ClusterClient,
	look func(ctx context.Context, node goredis.UniversalClient, key string),
) error {
	var mu sync.Mutex // guards masters
	var masters []*goredis.Client
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, node)
		return nil
	})
	if err != nil {
		return err
	}
	keys := s.probeKeys(ctx, cluster, len(masters))
	var all sync.WaitGroup
	for _, node := range masters {
		all.Go(func() { look(ctx, node, keys[node]) })
	}
	all.Wait()
	return nil
}

// findings are the results of the examination of one server or several. add is safe for concurrent use.
type findings struct {
	mu       sync.Mutex
	version  string
	durable  string
	warnings []string
	refuses  []string // the commands without which the storage cannot write
	readOnly string   // the warning that the server refuses all writes
	err      error    // of the last server that was refused or did not answer
}

// add adds the findings, or the error, of one more server. The durability is that of the least durable
// server.
func (f *findings) add(other *findings, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.err = err
		return
	}
	f.version, f.readOnly = other.version, cmp.Or(f.readOnly, other.readOnly)
	if slices.Index(durabilities, other.durable) > slices.Index(durabilities, f.durable) {
		f.durable = other.durable
	}
	f.refuses = slices.Compact(slices.Sorted(slices.Values(append(f.refuses, other.refuses...))))
	for _, w := range other.warnings {
		if !slices.Contains(f.warnings, w) {
			f.warnings = append(f.warnings, w)
		}
	}
}

func (f *findings) warnf(format string, args ...any) {
	f.warnings = append(f.warnings, fmt.Sprintf(format, args...))
}

// look examines one server. It returns an error if the server is unfit or does not answer.
func (s *Storage) look(ctx context.Context, node goredis.UniversalClient) (*findings, error) {
	if err := node.Ping(ctx).Err(); err != nil && !forbidden(err) {
		return nil, translateRead(err)
	}
	f := &findings{version: "of unknown version", durable: durableUnknown}
	text, err := node.Info(ctx).Result()
	err = translateRead(err)
	info := parseInfo(text)
	if err != nil || info["redis_version"] == "" {
		if away(err) {
			return nil, err
		}
		f.warnf("the server does not tell its version, role and memory policy")
		return f, nil
	}
	f.version = info["redis_version"]
	return f, s.judge(ctx, node, info, f)
}

// judge returns errUnfit with the reason for an unfit server, and adds warnings of doubtful settings to f.
func (s *Storage) judge(
	ctx context.Context, node goredis.UniversalClient, info map[string]string, f *findings,
) error {
	if !since62(f.version) {
		return fmt.Errorf("%w: redis %s, want 6.2 or later", errUnfit, f.version)
	}
	if role := info["role"]; role != "" && role != "master" {
		return fmt.Errorf("%w: its role is %s, want master", errUnfit, role)
	}
	if info["cluster_enabled"] == "1" && !s.cluster {
		return fmt.Errorf("%w: a node of a Cluster, want redis+cluster:// or a ClusterClient", errUnfit)
	}
	policy := info["maxmemory_policy"]
	switch {
	case policy == "":
		f.warnf("the server does not tell its memory policy; it must not evict keys")
	case info["maxmemory"] == "0" || policy == "noeviction":
	case s.health.allowEviction:
		f.warnf("maxmemory-policy is %s: tasks can be evicted and lost", policy)
	default:
		return fmt.Errorf("%w: maxmemory-policy is %s, want noeviction", errUnfit, policy)
	}
	f.durable = durability(ctx, node, info)
	switch f.durable {
	case durableUnknown:
		f.warnf("the server does not tell how it persists")
	case durableNone:
		f.warnf("the append-only file is off: acknowledged tasks are lost when the server stops")
	}
	n, err := strconv.Atoi(info["connected_slaves"])
	if err == nil && n < s.replicas {
		f.warnf("WaitReplicas is %d, but the master has %d replicas: enqueues and settles fail", s.replicas, n)
	}
	if n > 0 && minReplicas(ctx, node) == "0" {
		f.warnf("min-replicas-to-write is 0: a master cut off from its replicas takes tasks that a failover loses")
	}
	return nil
}

// The durability of an acknowledged task.
const (
	durableAlways  = "append-only file, fsync always: an acknowledged task survives a power cut"
	durableSecond  = "append-only file, fsync every second: a power cut can lose the last two seconds"
	durableNoSync  = "append-only file, fsync left to the system: a power cut can lose half a minute"
	durableNone    = "no append-only file: a stop of the server loses what came after its last snapshot"
	durableUnknown = "unknown: the server does not tell"
)

// durabilities are ordered, the best first. A server that does not report its durability may keep nothing.
var durabilities = []string{durableAlways, durableSecond, durableNoSync, durableUnknown, durableNone}

func durability(ctx context.Context, node goredis.UniversalClient, info map[string]string) string {
	switch info["aof_enabled"] {
	case "0":
		return durableNone
	case "":
		return durableUnknown
	}
	values, err := node.ConfigGet(ctx, "appendfsync").Result()
	if err != nil {
		return durableUnknown
	}
	switch values["appendfsync"] {
	case "always":
		return durableAlways
	case "everysec":
		return durableSecond
	case "no":
		return durableNoSync
	}
	return durableUnknown
}

func minReplicas(ctx context.Context, node goredis.UniversalClient) string {
	values, err := node.ConfigGet(ctx, "min-replicas-to-write").Result()
	if err != nil {
		return ""
	}
	return values["min-replicas-to-write"]
}

// parseInfo reads the lines of INFO.
func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// since62 reports whether a version is 6.2 or later. It accepts a version that does not begin with a
// number.
func since62(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	m, err := strconv.Atoi(major)
	if err != nil {
		return true
	}
	n, _ := strconv.Atoi(minor)
	return m > 6 || m == 6 && n >= 2
}

// mostQueues is how many queues are searched for problems to warn of.
const mostQueues = 100

// used lists the queues that this process uses, sorted, at most mostQueues of them.
func (s *Storage) used() []string {
	queues := append(s.names.known(), s.wake.known()...)
	slices.Sort(queues)
	queues = slices.Compact(queues)
	return queues[:min(len(queues), mostQueues)]
}

// damage returns warnings of damaged records in the queues that this process uses.
func (s *Storage) damage(ctx context.Context) []string {
	all, err := s.Stats(ctx, s.used()...)
	var warnings []string
	for i := range all {
		if n := all[i].Damaged; err == nil && n > 0 {
			warnings = append(warnings, fmt.Sprintf("queue %s has %d damaged records", all[i].Queue, n))
		}
	}
	return warnings
}

// reindexWarned is how long Describe warns of unindexed records after a claim found them.
const reindexWarned = 24 * time.Hour

// reindexWarnings returns a warning for each queue in which claims have lately found unindexed records.
func reindexWarnings(c *clocks) (warnings []string) {
	for _, queue := range slices.Sorted(maps.Keys(c.reindexed)) {
		if at := c.reindexed[queue]; c.now.Sub(at) < reindexWarned {
			warnings = append(warnings, fmt.Sprintf("tasks of queue %s had no place at %s, and wait again, "+
				"as after a torn append-only file: call BGREWRITEAOF after each crash of Redis",
				queue, at.UTC().Format(time.DateTime)))
		}
	}
	return warnings
}
