package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // names scripts as EVALSHA wants them; guards nothing
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

//go:embed scripts/*.lua
var sources embed.FS

// constants are what the scripts share with Go, by the names that they have there.
func constants(limits storage.Limits, short bool) map[string]string {
	all := map[string]string{
		"SHORT":         strconv.FormatBool(short),
		"DEADFOR":       inMicros(limits.DeadFor),
		"DEADMAX":       strconv.Itoa(limits.DeadMax),
		"DECLINEDFOR":   inMicros(limits.DeclinedFor),
		"MAXKINDS":      strconv.Itoa(storage.MaxKinds),
		"STATSKINDS":    strconv.Itoa(storage.MaxStatsKinds),
		"REASONKIND":    quote(storage.ReasonKind),
		"LANELIFE":      inMicros(storage.LaneLife),
		"JUMPAFTER":     inMicros(storage.JumpAfter),
		"JUMPWAIT":      inMicros(storage.JumpWait),
		"JUMPBACK":      inMicros(jumpBack),
		"TICKHIDE":      inMicros(storage.TickHide),
		"UNREADKEEP":    inMicros(storage.DefaultUnreadKeep),
		"RESULTKEEP":    inMicros(storage.DefaultResultKeep),
		"QUEUELIFE":     inMicros(queueLife),
		"TOUCHEVERY":    inMicros(touchEvery),
		"MARKEVERY":     inMicros(markEvery),
		"PUTOFF":        inMicros(putOff),
		"RESTFOR":       inMicros(restFor),
		"NEVER":         strconv.FormatInt(never, 10),
		"SPREAD":        strconv.FormatInt(spread, 10),
		"BEHIND":        quote(strconv.FormatInt(spread/2, 10)),
		"MAXPRIORITY":   strconv.Itoa(storage.MaxPriority),
		"MAXBYTES":      strconv.Itoa(storage.MaxClaimBytes),
		"MAXATTEMPTS":   strconv.Itoa(storage.MaxAttempts),
		"REASONRETRIES": quote(storage.ReasonRetries),
		"REASONCRASHES": quote(storage.ReasonCrashes),
		"FORMAT":        strconv.Itoa(format),
		"LATEST":        strconv.Itoa(latestFormat),
		"HEADER":        strconv.Itoa(headerSize),
		"PLACE":         strconv.Itoa(placeSize),
		"HASPLACE":      strconv.Itoa(hasPlace),
		"HASMORE":       strconv.Itoa(hasMore),
		"FENCE":         strconv.Itoa(fenceSize),
		"STARTED":       strconv.Itoa(leaseStarted),
		"ASKED":         strconv.Itoa(leaseAsked),
		"ASIDE":         strconv.Itoa(leaseAside),
		"RECORD":        strconv.Itoa(leaseRecord),
		"GROUPED":       strconv.Itoa(leaseGrouped),
		"SINGLES":       strconv.Itoa(singles),
		"ALARM":         quote(alarmSign),
		"COUNT":         quote(countSign),
		"PAD":           quote(strings.Repeat("-", padSize)),
		"BLOCK":         strconv.Itoa(block),
	}
	for at, suffix := range suffixes {
		all[strings.ToUpper(suffix)] = strconv.Itoa(at + 1)
	}
	return all
}

// spread is how far the places of two priorities in waiting are apart. Places up to half of that
// come before the line: of a higher priority, or of priority 0 and gone to its head.
const spread = 1 << 48

// Tasks that one claim took from a queue share one deadline, as a group: its fence behind the sign
// of an alarm is its member of the leases. The claims hash has the ids of a group under its fence,
// and behind the sign of a count how many are still in it. Whatever ends a lease or moves its
// deadline takes the task out of its group. Outside of a group a lease has its rank in the claim,
// in two bytes: what is recovered goes back in the order of the claims.
const (
	alarmSign = "!"
	countSign = "#"
	singles   = 4 // fewer are no group
)

// padSize is the length of a field of the pending hash that keeps Redis from packing it, which is
// slow to fill: a claim would begin that anew each time the last task was settled.
const padSize = 65

func quote(text string) string { return "'" + text + "'" }

func inMicros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// jumpBack is by how much a mark is ahead of a clock that was set back. The general ways keep
// that clock beside the mark then, and the short ones leave all calls to them.
const jumpBack = time.Second

// touchEvery is how often steps note that a queue is in use.
const touchEvery = time.Minute

// putOff is how long recovery and trimming wait after a claim that maintained the queue, so that
// they come in batches where tasks expire all the time. The contract permits less than a second.
const putOff = time.Second / 2

// markEvery is how often a claim from several queues moves the marks of those in which it
// finds nothing. It is far below storage.JumpAfter.
const markEvery = time.Second

// restFor is how long the mark of a queue rests in which nothing is due, where it is only
// maintained: whoever sweeps the queue again and again in that time does not write to it. The mark
// tells when the queue was last looked at, so that this is far below storage.JumpAfter.
const restFor = 7 * time.Second

// script is one of scripts/*.lua.
type script struct {
	source, sha string
	calls       *calls
}

// scripts are all of them.
type scripts struct {
	// These work on queues and have base.lua and lib.lua before them. claim begins with its short
	// way.
	apply, claim, extend, configure, apart, task, list, stats, inspect script
	// These work on the global keys.
	register, forget, beat, runners, probe, layout script
	// These are the short ways of apply, with few keys; see shortKeys.
	insert, complete script

	calls calls // of scripts, and of the few other commands
}

// loadScripts makes the scripts. Without short the short ways leave everything to the general ones.
func loadScripts(in *interrupts, limits storage.Limits, short bool) (*scripts, error) {
	s := &scripts{calls: calls{interrupts: in}}
	known := constants(limits, short)
	libraries := make(map[string]string) // the files of scripts that take all keys, filled once
	for name, to := range s.named() {
		filled := libraries
		if shortKeys[name] != nil {
			filled = make(map[string]string)
		}
		source, err := sourceOf(s.files(name, to), within(known, shortKeys[name]), filled)
		if err != nil {
			return nil, err
		}
		sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
		*to = script{source: source, sha: hex.EncodeToString(sum[:]), calls: &s.calls}
	}
	return s, nil
}

// shortKeys are the keys of a queue that scripts take that are a short way alone. A key costs a
// script, and the client who sends it, as much as a small command.
var shortKeys = map[string][]int{
	"insert":   {metaKey, tasksKey, waitingKey, lineKey, lanesKey},
	"complete": {metaKey, tasksKey, pendingKey, leasesKey, claimsKey, lanesKey},
}

// places gives the places of the keys that a script takes, nil where it takes all.
func (s *scripts) places(of *script) []int {
	switch of {
	case &s.insert:
		return shortKeys["insert"]
	case &s.complete:
		return shortKeys["complete"]
	}
	return nil
}

// within gives the constants of a script that takes some of the keys of a queue, all where some
// are none.
func within(known map[string]string, some []int) map[string]string {
	if some == nil {
		return known
	}
	known = maps.Clone(known)
	for i, at := range some {
		known[strings.ToUpper(suffixes[at])] = strconv.Itoa(i + 1)
	}
	known["BLOCK"] = strconv.Itoa(len(some))
	return known
}

// sourceOf joins files to a script. It keeps the text of each, with the constants in it, in filled.
func sourceOf(files []string, known, filled map[string]string) (string, error) {
	var all strings.Builder
	for _, file := range files {
		if filled[file] == "" {
			text, err := sources.ReadFile("scripts/" + file + ".lua")
			if err != nil {
				return "", err
			}
			filled[file] = substitute(text, known)
		}
		all.WriteString(filled[file])
	}
	return all.String(), nil
}

// substitute puts the constants into a text, in place of the words that name them. A regular expression
// would take each Open 20 ms.
func substitute(text []byte, known map[string]string) string {
	var out strings.Builder
	for begin := 0; begin < len(text); {
		end := begin
		for end < len(text) && inWord(text[end]) {
			end++
		}
		word := text[begin:end]
		if value, ok := known[string(word)]; ok {
			out.WriteString(value)
		} else {
			out.Write(word)
		}
		begin = end
		for begin < len(text) && !inWord(text[begin]) {
			begin++
		}
		out.Write(text[end:begin])
	}
	return out.String()
}

func inWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

// named gives the scripts by their names.
func (s *scripts) named() map[string]*script {
	return map[string]*script{
		"apply": &s.apply, "claim": &s.claim, "extend": &s.extend, "configure": &s.configure,
		"apart": &s.apart, "inspect": &s.inspect, "task": &s.task, "list": &s.list, "stats": &s.stats,
		"register": &s.register, "forget": &s.forget, "beat": &s.beat, "runners": &s.runners,
		"probe": &s.probe, "layout": &s.layout, "insert": &s.insert, "complete": &s.complete,
	}
}

// files are those of which a script is made.
func (s *scripts) files(name string, of *script) []string {
	lib := []string{"base", "jump", "lib", "record", "entry", "refusal", "commit"}
	switch of {
	case &s.forget, &s.runners, &s.probe, &s.layout:
		return []string{name}
	case &s.insert, &s.complete:
		return []string{"pack", "short" + name}
	case &s.register:
		return []string{"refusal", name}
	case &s.beat:
		return []string{"refusal", "jump", name}
	case &s.apply:
		return slices.Concat([]string{"pack"}, lib, []string{"check", "step", name})
	case &s.claim:
		return slices.Concat([]string{"pack", "lease", "shortclaim"}, lib, []string{"maintain", name})
	}
	return slices.Concat([]string{"pack"}, lib, []string{name})
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
