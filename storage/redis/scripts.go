package redis

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // names scripts as EVALSHA wants them; guards nothing
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

//go:embed scripts/*.lua
var sources embed.FS

// constants are what the scripts share with Go, by the names that they have there.
var constants = map[string]string{
	"LANELIFE":      inMicros(storage.LaneLife),
	"JUMPAFTER":     inMicros(storage.JumpAfter),
	"JUMPWAIT":      inMicros(storage.JumpWait),
	"JUMPBACK":      inMicros(jumpBack),
	"TICKHIDE":      inMicros(storage.TickHide),
	"UNREADKEEP":    inMicros(storage.DefaultUnreadKeep),
	"RESULTKEEP":    inMicros(storage.DefaultResultKeep),
	"QUEUELIFE":     inMicros(queueLife),
	"MARKEVERY":     inMicros(markEvery),
	"RESTFOR":       inMicros(restFor),
	"NEVER":         strconv.FormatInt(never, 10),
	"MAXBYTES":      strconv.Itoa(storage.MaxClaimBytes),
	"MAXATTEMPTS":   strconv.Itoa(storage.MaxAttempts),
	"REASONRETRIES": "'" + storage.ReasonRetries + "'",
	"REASONCRASHES": "'" + storage.ReasonCrashes + "'",
	"HEADER":        strconv.Itoa(headerSize),
	"PLACE":         strconv.Itoa(placeSize),
	"HASPLACE":      strconv.Itoa(hasPlace),
	"FENCE":         strconv.Itoa(fenceSize),
	"STARTED":       strconv.Itoa(leaseStarted),
	"ASKED":         strconv.Itoa(leaseAsked),
}

var capitals = regexp.MustCompile(`\b[A-Z]+\b`)

// complete puts the constants into a script.
func complete(source string) string {
	return capitals.ReplaceAllStringFunc(source, func(name string) string {
		return cmp.Or(constants[name], name)
	})
}

func inMicros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// jumpBack is by how much a mark is ahead of a clock that was set back. The general scripts keep
// that clock beside the mark then, and the short ones leave all calls to them.
const jumpBack = time.Second

// markEvery is how often a claim from several queues moves the marks of those in which it
// finds nothing. It is far below storage.JumpAfter.
const markEvery = time.Second

// restFor is how long the mark of a queue rests in which nothing is due, where it is only
// maintained. It too is below storage.JumpAfter, and below that less the five minutes in which
// each queue is swept.
const restFor = 4 * time.Minute

// script is one of scripts/*.lua.
type script struct {
	source, sha string
	calls       *calls
}

// scripts are all of them.
type scripts struct {
	// These work on queues and have base.lua and lib.lua before them.
	apply, claim, extend, configure, apart, task, list, stats, inspect script
	// These are short ones for what most calls of apply are.
	enqueue, insert, complete, finish script
	// And what most claims are, of one queue and of several.
	grab, glean script
	// These work on the global keys.
	register, forget, beat, runners, probe script

	calls calls // of scripts, and of the few other commands
}

func loadScripts(in *interrupts) (*scripts, error) {
	s := &scripts{calls: calls{interrupts: in}}
	for name, to := range s.named() {
		var text []byte
		for _, file := range s.files(name, to) {
			piece, err := sources.ReadFile("scripts/" + file + ".lua")
			if err != nil {
				return nil, err
			}
			text = append(text, piece...)
		}
		source := complete(string(text))
		sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
		*to = script{source: source, sha: hex.EncodeToString(sum[:]), calls: &s.calls}
	}
	return s, nil
}

// named gives the scripts by their names.
func (s *scripts) named() map[string]*script {
	return map[string]*script{
		"apply": &s.apply, "claim": &s.claim, "extend": &s.extend, "configure": &s.configure,
		"apart": &s.apart, "inspect": &s.inspect, "task": &s.task, "list": &s.list, "stats": &s.stats,
		"register": &s.register, "forget": &s.forget, "beat": &s.beat, "runners": &s.runners,
		"probe": &s.probe, "enqueue": &s.enqueue, "insert": &s.insert, "complete": &s.complete,
		"grab": &s.grab, "glean": &s.glean, "finish": &s.finish,
	}
}

// files are those of which a script is made.
func (s *scripts) files(name string, of *script) []string {
	lib := []string{"jump", "lib", "record", "entry", "refusal", "commit"}
	switch of {
	case &s.forget, &s.runners, &s.probe, &s.enqueue, &s.grab, &s.glean, &s.finish:
		return []string{name}
	case &s.register:
		return []string{"refusal", name}
	case &s.beat:
		return []string{"refusal", "jump", name}
	case &s.insert, &s.complete:
		return []string{"short", name}
	case &s.apply:
		return slices.Concat([]string{"base"}, lib, []string{"check", "step", name})
	case &s.claim:
		return slices.Concat([]string{"base", "take"}, lib, []string{"maintain", name})
	}
	return slices.Concat([]string{"base"}, lib, []string{name})
}

// processor carries out commands: a client or a pipeline.
type processor interface {
	Process(ctx context.Context, cmd goredis.Cmder) error
}

// sent says whether a call may have been sent. go-redis reads the arguments of a command
// where it writes them to a connection, at each of its tries: before that nothing happened.
type sent struct{ atomic.Bool }

// noted is an argument that notes that it was read.
type noted struct {
	text string
	in   *sent
}

// MarshalBinary is what go-redis calls.
func (n *noted) MarshalBinary() ([]byte, error) {
	n.in.Store(true)
	return []byte(n.text), nil
}

// String is for what looks at commands.
func (n *noted) String() string { return n.text }

// call is the command that runs a script by its hash, or by its text.
func (sc *script) call(ctx context.Context, in *sent, whole bool, keys, args []any) *goredis.Cmd {
	all := make([]any, 3, 3+len(keys)+len(args))
	all[0], all[1], all[2] = "evalsha", &noted{sc.sha, in}, len(keys)
	if whole {
		all[0], all[1] = "eval", &noted{sc.source, in}
	}
	cmd := goredis.NewCmd(ctx, append(append(all, keys...), args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// run runs a script by its hash, and by its text where the server forgot it. Its error
// is translated.
func (sc *script) run(ctx context.Context, c processor, keys []any, args ...any) (any, error) {
	var in sent
	reply, err := heed(ctx, sc.calls, func(ctx context.Context) (any, error) {
		cmd := sc.call(ctx, &in, false, keys, args)
		err := c.Process(ctx, cmd)
		if forgotten(err) {
			cmd = sc.call(ctx, &in, true, keys, args)
			err = c.Process(ctx, cmd)
		}
		return cmd.Val(), err
	})
	return reply, translate(err, in.Load())
}

// list runs a script that answers with a list.
func (sc *script) list(ctx context.Context, c processor, keys []any, args ...any) ([]any, error) {
	reply, err := sc.run(ctx, c, keys, args...)
	if err != nil {
		return nil, err
	}
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("%w: got %T for a list", errReply, reply)
	}
	return list, nil
}
