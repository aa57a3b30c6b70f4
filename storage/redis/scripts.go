package redis

import (
	"cmp"
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
	"github.com/midgehq/midge/storage/internal/engine"
)

//go:embed scripts/*.lua
var sources embed.FS

// ways are the settings of the scripts that do not come from the limits. Only tests change general,
// mostVoid and reindex.
type ways struct {
	cluster  bool          // the server is a Cluster
	general  bool          // the short ways leave every call to the general ways
	mostVoid int           // replaces mostVoid if it is not 0
	reindex  time.Duration // replaces reindexEvery if it is not 0
}

// mostVoid is how many void entries of a line one step removes or passes over at most. A page reads
// four times as many entries.
const mostVoid = 500

// constants returns the values that the scripts share with Go, as Lua text, by their names in the scripts.
func constants(limits storage.Limits, by ways) map[string]string {
	all := map[string]string{
		"CLUSTER":       strconv.FormatBool(by.cluster),
		"IDLEFOR":       inMicros(idleFor),
		"SHORT":         strconv.FormatBool(!by.general),
		"MOSTVOID":      strconv.Itoa(cmp.Or(by.mostVoid, mostVoid)),
		"DEADFOR":       inMicros(limits.DeadFor),
		"DEADMAX":       deadMax(limits),
		"DECLINEDFOR":   inMicros(limits.DeclinedFor),
		"MAXNONE":       quote(strconv.Itoa(storage.MaxNone)),
		"MAXKINDS":      strconv.Itoa(storage.MaxKinds),
		"LOOKED":        strconv.Itoa(lookedLines),
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
		"REINDEXEVERY":  inMicros(cmp.Or(by.reindex, reindexEvery)),
		"MOSTPROMOTED":  strconv.Itoa(mostPromoted),
		"NEVER":         strconv.FormatInt(never, 10),
		"SPREAD":        strconv.FormatInt(spread, 10),
		"BEHIND":        quote(strconv.FormatInt(spread/2, 10)),
		"MAXPRIORITY":   strconv.Itoa(storage.MaxPriority),
		"MAXBYTES":      strconv.Itoa(storage.MaxClaimBytes),
		"MAXATTEMPTS":   strconv.Itoa(storage.MaxAttempts),
		"REASONRETRIES": quote(storage.ReasonRetries),
		"REASONCRASHES": quote(storage.ReasonCrashes),
		"FENCE":         strconv.Itoa(fenceSize),
		"STARTED":       strconv.Itoa(leaseStarted),
		"ASKED":         strconv.Itoa(leaseAsked),
		"ASIDE":         strconv.Itoa(leaseAside),
		"RECORD":        strconv.Itoa(leaseRecord),
		"COUNTED":       strconv.Itoa(leaseCounted),
		"GROUPED":       strconv.Itoa(leaseGrouped),
		"SINGLES":       strconv.Itoa(singles),
		"ALONE":         strconv.Itoa(aloneRecord),
		"ALARM":         quote(alarmSign),
		"COUNT":         quote(countSign),
		"PAD":           quote(strings.Repeat("-", padSize)),
		"DOUBTFUL":      strconv.Itoa(doubtful),
	}
	maps.Copy(all, keyPlaces())
	maps.Copy(all, stateTables())
	maps.Copy(all, recordNumbers())
	maps.Copy(all, limitBounds())
	maps.Copy(all, ringBounds())
	return all
}

// recordNumbers returns the numbers of the format of records, as Lua text, by their names in the scripts.
func recordNumbers() map[string]string {
	return map[string]string{
		"FORMAT":      strconv.Itoa(format),
		"LATEST":      strconv.Itoa(latestFormat),
		"HEADER":      strconv.Itoa(headerSize),
		"PLACE":       strconv.Itoa(placeSize),
		"HASPLACE":    strconv.Itoa(hasPlace),
		"HASMORE":     strconv.Itoa(hasMore),
		"INPARTITION": strconv.Itoa(inPartition),
		"RUN":         strconv.Itoa(runPart),
		"COSTPART":    strconv.Itoa(costPart),
		"COSTSIZE":    strconv.Itoa(costSize),
	}
}

// limitBounds returns the bounds of the limits of queues, as Lua text, by their names in the scripts.
func limitBounds() map[string]string {
	return map[string]string{
		"LIMITMOST":  strconv.Itoa(storage.MaxLimitConcurrency),
		"WEIGHTMOST": strconv.Itoa(storage.MaxWeight),
		"RATEMOST":   strconv.Itoa(storage.MaxRate),
		"RATEPARTS":  strconv.Itoa(storage.RateParts),
		"PERLEAST":   inMicros(storage.MinSpan),
		"PERMOST":    inMicros(storage.MaxPer),
		"STARTSMOST": strconv.Itoa(engine.MostStarts),
	}
}

// ringBounds returns the constants of partitions, as Lua text, by their names in the scripts.
func ringBounds() map[string]string {
	return map[string]string{
		"PLAIN":        strconv.Itoa(plain),
		"LISTED":       strconv.FormatInt(2*never, 10),
		"MAXPARTITION": strconv.Itoa(storage.MaxPartition),
		"MAXTURNS":     strconv.Itoa(storage.MaxTurns),
		"MAXREST":      strconv.Itoa(storage.MaxRest),
		"MOSTKEYED":    strconv.Itoa(mostKeyed),
		"MOSTAGED":     strconv.Itoa(mostAged),
	}
}

// keyPlaces returns the places and types of a queue's keys, as Lua text, by their names in the scripts.
func keyPlaces() map[string]string {
	all := map[string]string{"BLOCK": strconv.Itoa(block), "KEYTYPES": keyTypes()}
	for at, suffix := range suffixes {
		all[strings.ToUpper(suffix)] = strconv.Itoa(at + 1)
	}
	return all
}

// aloneRecord is the size in bytes from which a record is a text of its own in the reply of a claim.
const aloneRecord = 384

// deadMax returns how many dead tasks a queue keeps, as Lua text: so many that there are never more if
// there is no limit.
func deadMax(limits storage.Limits) string {
	if limits.DeadMax == storage.NoLimit {
		return strconv.FormatInt(never, 10)
	}
	return strconv.Itoa(limits.DeadMax)
}

// spread is the distance between the scores of two neighboring priorities in waiting. Tasks with scores
// up to half of spread come before the line: tasks of a higher priority, and tasks of priority 0 that
// went back to its head.
const spread = 1 << 48

// The tasks that one claim took from a queue form a group with one deadline. The member of a group in
// leases is alarmSign and its fence. The hash claims has the ids of a group under its fence, and under
// countSign and the fence how many of them are still in the group. A step that ends a lease or moves
// its deadline takes the task out of its group. A lease outside of a group has the rank of the task in
// its claim, in two bytes, so that recovered tasks go back in the order of their claims.
const (
	alarmSign = "!"
	countSign = "#"
	singles   = 4 // fewer tasks form no group
)

// doubtful is added to the byte of the priority in the member of a suspect that was declined (byname.lua).
const doubtful = 64

// plain is added likewise for a task with a partition that is no suspect and may be claimed ahead.
const plain = 128

// mostKeyed is how many tasks of queues with partitions a script call of a claim takes at most. Such a task
// takes the server about 15 µs, because each stands in a line of its own.
const mostKeyed = 200

// mostAged is how many partitions of a ring count for the age of a queue.
const mostAged = 20

// lookedLines is how many lines of kinds a script call of a claim reads, in all of its queues together.
const lookedLines = 128

// padSize is the length of a field of the hash pending that keeps Redis from packing the hash. A packed
// hash is slow to fill, and without that field Redis would pack it anew each time after the last pending
// task was settled.
const padSize = 65

func quote(text string) string { return "'" + text + "'" }

func inMicros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// jumpBack is how far a mark has to be ahead of the clock to show that the clock was set back. Then the
// general ways keep the clock beside the mark and in leases, and the short ways leave all calls to them.
const jumpBack = time.Second

// touchEvery is how often steps note that a queue is in use.
const touchEvery = time.Minute

// putOff is how long recovery and trimming wait after a claim that maintained the queue, so that
// they work in batches if tasks expire all the time. The contract permits less than a second.
const putOff = time.Second / 2

// mostPromoted is how many scheduled tasks, and how many retried ones, a claim promotes in all of its queues
// together.
const mostPromoted = 500

// markEvery is how often a claim from several queues moves the marks of the queues in which it
// finds nothing. It is far below storage.JumpAfter.
const markEvery = time.Second

// idleFor is how long a process counts as idle after a claim that left nothing. Its runners claim each second
// while they are idle.
const idleFor = 3 * time.Second

// restFor is how often a claim that only maintains a queue moves its mark if nothing is due there, so
// that repeated sweeps write nothing in between. It is far below storage.JumpAfter, because the mark
// shows when a step last saw the clock.
const restFor = 7 * time.Second

// reindexEvery is how often a claim compares the number of a queue's records with the sizes of its sets.
// After a walk through all records, which costs some microseconds a record, the wait is ten times as long.
const reindexEvery = time.Minute

// script is a script as it is sent: files of scripts/*.lua, joined and with their constants.
type script struct {
	source, sha string
	calls       *calls
}

// scripts are all scripts of a storage.
type scripts struct {
	// These work on queues and begin with the shared files, such as base.lua and lib.lua (see
	// files). The short way of claim is part of its script.
	apply, claim, extend, configure, divide, apart, task, list, partitions, stats, inspect, pass script
	// These work on the global keys.
	register, forget, beat, runners, probe, layout script
	wait                                           script // for WAIT, of a key of its own
	// These are the short ways of apply, with few keys; see shortKeys.
	insert, complete script

	calls calls // of scripts, and of the few other commands
}

// loadScripts makes the scripts.
func loadScripts(in *interrupts, limits storage.Limits, by ways) (*scripts, error) {
	s := &scripts{calls: calls{interrupts: in}}
	known := constants(limits, by)
	libraries := make(map[string]string) // filled files, shared by the scripts that take all keys
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

// shortKeys are the keys of a queue that the scripts of short ways take. They take few, because a key
// costs the script, and the client that sends it, as much as a small command.
var shortKeys = map[string][]int{
	"insert":   {metaKey, tasksKey, waitingKey, lineKey, lanesKey, idleKey},
	"pass":     {metaKey, waitingKey, lineKey, idleKey, ringKey},
	"complete": {metaKey, tasksKey, pendingKey, leasesKey, claimsKey, lanesKey},
}

// places returns the places of the keys that a script takes, or nil if it takes all.
func (s *scripts) places(of *script) []int {
	switch of {
	case &s.insert:
		return shortKeys["insert"]
	case &s.complete:
		return shortKeys["complete"]
	case &s.pass:
		return shortKeys["pass"]
	}
	return nil
}

// within returns the constants of a script that takes only some of the keys of a queue: the places of
// these keys differ. A nil some means all keys.
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

// sourceOf joins files to a script. It keeps the text of each file, with the constants filled in, in
// filled, and uses the texts that it finds there.
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

// substitute replaces the words of a text that name constants by their values. With a regular expression
// each Open would take 20 ms for that.
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

// named returns the scripts by their names.
func (s *scripts) named() map[string]*script {
	return map[string]*script{
		"apply": &s.apply, "claim": &s.claim, "extend": &s.extend, "configure": &s.configure,
		"divide": &s.divide, "apart": &s.apart, "inspect": &s.inspect, "task": &s.task, "list": &s.list,
		"stats": &s.stats, "partitions": &s.partitions,
		"register": &s.register, "forget": &s.forget, "beat": &s.beat, "runners": &s.runners,
		"probe": &s.probe, "layout": &s.layout, "insert": &s.insert, "complete": &s.complete, "pass": &s.pass,
		"wait": &s.wait,
	}
}

// files returns the names of the files, without .lua, that are joined to a script.
func (s *scripts) files(name string, of *script) []string {
	lib := []string{
		"base", "jump", "judge", "lib", "record", "byname", "entry", "rate", "ring", "refusal", "commit",
	}
	switch of {
	case &s.runners, &s.probe, &s.wait:
		return []string{name}
	case &s.forget, &s.layout:
		return []string{"pack", name}
	case &s.insert:
		return []string{"pack", "wake", "shortinsert"}
	case &s.complete:
		return []string{"pack", "shortcomplete"}
	case &s.pass:
		return []string{"wake", name}
	case &s.register:
		return []string{"refusal", name}
	case &s.beat:
		return []string{"pack", "refusal", "jump", "judge", name}
	case &s.configure:
		return slices.Concat([]string{"pack", "wake"}, lib, []string{"limit", name})
	case &s.apply:
		return slices.Concat([]string{"pack", "wake"}, lib, []string{"check", "step", name})
	case &s.claim:
		before := []string{"pack", "wake", "lease", "shortclaim"}
		behind := []string{"reindex", "maintain", "limit", name, "declined", "take", "answer"}
		return slices.Concat(before, lib, behind)
	}
	return slices.Concat([]string{"pack", "wake"}, lib, []string{name})
}

// processor is a client or a pipeline: it carries out commands.
type processor interface {
	Process(ctx context.Context, cmd goredis.Cmder) error
}

// sent reports whether a call may have been sent. go-redis reads the arguments of a command when it
// writes them to a connection, at each of its tries; until then nothing was sent.
type sent struct{ atomic.Bool }

// noted is an argument of a command that sets sent when go-redis reads it.
type noted struct {
	text string
	in   *sent
}

// MarshalBinary returns the text. go-redis calls it to write the argument.
func (n *noted) MarshalBinary() ([]byte, error) {
	n.in.Store(true)
	return []byte(n.text), nil
}

// String returns the text, for code that prints commands.
func (n *noted) String() string { return n.text }

// call returns the command that runs a script, by its text if whole is true, else by its hash.
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

// run runs a script by its hash, and again by its text if the server does not know the hash. It
// returns the translated error.
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

// list runs a script that returns a list. It returns errReply for any other reply.
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
