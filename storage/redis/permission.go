package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

// PermissionError reports that the server refuses commands or keys that the storage needs: the user may not
// use them, or the server has renamed the commands. errors.Is(err, storage.ErrRefused) holds. Open returns
// it if the storage could not read, or could carry out only some of its writes, because Redis does not roll
// back the writes of a script before the first write that it refuses. If the server refuses all writes, or
// scripts, the storage opens, and each call that writes returns a PermissionError.
type PermissionError struct {
	// Commands are the refused commands, in capitals.
	Commands []string
	// Keys is the pattern of the storage's keys if the user may use the commands, but not on these keys,
	// and Commands is then empty; otherwise "".
	Keys string
}

// Error names the commands, or the keys.
func (e *PermissionError) Error() string {
	if e.Keys != "" {
		return fmt.Sprintf("the server refuses the keys %s: want a user with the rule ~%s, or as Config.Prefix "+
			"a prefix whose keys the user may use", e.Keys, e.Keys)
	}
	return fmt.Sprintf("the server refuses %s: want a user with the permissions in the package documentation, "+
		"and no renamed commands", strings.Join(e.Commands, ", "))
}

// Is makes errors.Is(err, storage.ErrRefused) hold.
func (e *PermissionError) Is(target error) bool {
	return target == storage.ErrRefused || target == errUnfit
}

// forbidden reports whether the server refused a command because the user may not use it, or because the
// server does not know it, for example after it was renamed. The texts are those of Redis 6.2 and later:
// such an error within a script has no code of its own. An error of another server within err, such as
// that of a sentinel, is no refusal.
func forbidden(err error) bool {
	var refused goredis.Error
	if !errors.As(err, &refused) || err.Error() != refused.Error() {
		return false
	}
	if goredis.HasErrorPrefix(err, "NOPERM") {
		return true
	}
	text := refused.Error()
	return slices.ContainsFunc(forbiddenTexts, func(part string) bool { return strings.Contains(text, part) })
}

// refusesKeys reports whether the user may use a command, but not its keys. The texts are those of Redis 7
// and 6.2.
func refusesKeys(err error) bool {
	return err != nil && goredis.HasErrorPrefix(err, "NOPERM") &&
		(strings.Contains(err.Error(), "access a key") || strings.Contains(err.Error(), "one of the keys"))
}

var forbiddenTexts = []string{
	"unknown command", "nknown Redis command", "can't run this command", "has no permissions to run",
}

// permitted finds out which of midge's commands a server refuses. key is a key of that server which does
// not exist. It returns a *PermissionError if the storage cannot work there, and adds the refused
// commands to f if it can only read, or not even that.
func (s *Storage) permitted(
	ctx context.Context, node goredis.UniversalClient, key string, f *findings,
) error {
	byHash, byText, err := s.tryProbe(ctx, node, key)
	if err != nil {
		return err
	}
	if refusesKeys(byText.Err()) || refusesKeys(byHash.Err()) {
		return &PermissionError{Keys: s.keys.prefix + ":*"}
	}
	for name, cmd := range map[string]*goredis.Cmd{"EVAL": byText, "EVALSHA": byHash} {
		if forbidden(cmd.Err()) {
			f.refuses = append(f.refuses, name)
		}
	}
	if len(f.refuses) > 0 {
		slices.Sort(f.refuses)
		f.warnf("the server refuses scripts (%s), so that nothing can be read or written: %v",
			strings.Join(f.refuses, ", "), cmp.Or(byText.Err(), byHash.Err()))
		return nil
	}
	list, ok := byText.Val().([]any)
	if err := translateRead(byText.Err()); err != nil || !ok {
		if away(err) {
			return err
		}
		f.warnf("the server does not run scripts: %v", err)
		return nil
	}
	v := values(list)
	if s.replicas > 0 && forbidden(node.Do(ctx, "wait", 0, 1).Err()) {
		return &PermissionError{Commands: []string{"WAIT"}}
	}
	reads, writes, reason := v.sublist().texts(), v.sublist().texts(), v.text()
	if v.bad {
		return errReply
	}
	return judgeCommands(reads, writes, reason, s.keys.channel("*"), f)
}

// judgeCommands judges the commands that scripts/probe.lua found refused. reason is the error of the first
// write.
func judgeCommands(reads, writes []string, reason, channels string, f *findings) error {
	if at := slices.Index(writes, "PUBLISH"); at >= 0 {
		writes = slices.Delete(writes, at, at+1)
		f.warnf("the user may not publish on %s: there are no wake-ups, and tasks start late", channels)
	}
	switch {
	case len(reads) > 0 || len(writes) > 0 && len(writes) < probeWrites:
		return &PermissionError{Commands: append(reads, writes...)}
	case len(writes) == 0:
	default:
		f.readOnly = "the server refuses all writes: " + reason
		if forbiddenText(reason) {
			f.refuses = writes
			f.readOnly = "the server refuses all writes: " + strings.Join(writes, ", ")
		}
		f.warnings = append(f.warnings, f.readOnly)
	}
	return nil
}

// forbiddenText is forbidden for the text of an error within a script.
func forbiddenText(text string) bool {
	return strings.HasPrefix(text, "NOPERM") ||
		slices.ContainsFunc(forbiddenTexts, func(part string) bool { return strings.Contains(text, part) })
}

// tryProbe runs scripts/probe.lua by its hash and by its text, in one round trip.
func (s *Storage) tryProbe(
	ctx context.Context, node goredis.UniversalClient, key string,
) (byHash, byText *goredis.Cmd, err error) {
	probe := &s.scripts.probe
	both, err := heed(ctx, &s.scripts.calls, func(ctx context.Context) ([2]*goredis.Cmd, error) {
		var in sent
		keys, args := []any{key}, []any{s.keys.channel("*")}
		byHash, byText := probe.call(ctx, &in, false, keys, args), probe.call(ctx, &in, true, keys, args)
		pipe := node.Pipeline()
		_ = pipe.Process(ctx, byHash)
		_ = pipe.Process(ctx, byText)
		_, _ = pipe.Exec(ctx) // each command has its own error
		return [2]*goredis.Cmd{byHash, byText}, context.Cause(ctx)
	})
	return both[0], both[1], translateRead(err)
}

// probeWrites is how many writing commands scripts/probe.lua tries.
const probeWrites = 9

// probeKeys returns a key for each master of a Cluster, which does not exist.
func (s *Storage) probeKeys(
	ctx context.Context, cluster *goredis.ClusterClient, masters int,
) map[*goredis.Client]string {
	keys := make(map[*goredis.Client]string, masters)
	for i := 0; i < probeTags && len(keys) < masters; i++ {
		key := fmt.Sprintf("%s:{*%d}:probe", s.keys.prefix, i)
		node, err := cluster.MasterForKey(ctx, key)
		if err == nil && keys[node] == "" {
			keys[node] = key
		}
	}
	return keys
}

// probeTags bounds the search of probeKeys: a master with few slots may go without a probe.
const probeTags = 4096

// mayRead returns a *PermissionError if the server refuses scripts, without which nothing can be read.
func (s *Storage) mayRead() error {
	if err := s.enter(); err != nil {
		return err
	}
	refuses := s.health.refused()
	if slices.Contains(refuses, "EVAL") || slices.Contains(refuses, "EVALSHA") {
		return &PermissionError{Commands: refuses}
	}
	return nil
}

// mayWrite returns a *PermissionError if the server refuses the commands of a call that writes.
func (s *Storage) mayWrite() error {
	if err := s.enter(); err != nil {
		return err
	}
	if refuses := s.health.refused(); len(refuses) > 0 {
		return &PermissionError{Commands: refuses}
	}
	return nil
}
