// Package storagetest is the contract of package storage as tests. An author of a
// storage calls [Run] from a test of their own:
//
//	func TestContract(t *testing.T) {
//		storagetest.Run(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
//			store, err := mine.Open(t.Context(), mine.Config{Limits: limits})
//			if err != nil {
//				t.Fatal(err)
//			}
//			return storagetest.Opened{Storage: store}
//		})
//	}
//
// Each rule of the contract is one function and one subtest, which prints the rule if it
// is broken. Each rule has a storage of its own and rules run in parallel, so an opener
// must open other data in each call (a key prefix, a schema, a directory).
//
// A topic is the first word in the names of some rules: the topic claim has the rule
// "claim/never early". A run of some topics alone is for a storage that has a second way to
// do the same, such as a general query beside a fast one for the most frequent calls. One
// run tests every rule, and a run with the fast query turned off tests the topics of the
// calls for which there is one:
//
//	storagetest.Run(t, openGeneral, "insert", "bulk", "claim", "kind", "settle")
//
// If time has to pass, a rule asks [Opened].Advance for it. A storage without one
// is tested in real time with leases of a second: a few dozen rules wait a second or two
// each, so run `go test` with a -parallel of 8 or more. A storage that lives in the
// process is best tested with [RunVirtual], under which time passes at once.
package storagetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

// Opener opens a fresh, empty storage with these limits, for one rule. It fails t if it
// cannot open the storage. The suite closes the storage. The opener ends anything else that it starts, such
// as a server, with t.Cleanup, which runs after the storage is closed.
type Opener func(t testing.TB, limits storage.Limits) Opened

// Opened is a storage under test, with optional means to manipulate it. A rule that needs
// a missing field logs that and passes.
type Opened struct {
	Storage storage.Storage
	// Again opens another handle on the same data, as a second process would.
	Again func(t testing.TB) storage.Storage
	// Durable means that the data outlive the last handle: a storage that was closed and
	// opened Again still has them.
	Durable bool
	// Advance moves the storage's clock forward. Without it time is real.
	Advance func(d time.Duration)
	// Jump sets the storage's clock ahead at once, or back if d is negative, as an
	// administrator does. The clock goes on from there.
	Jump func(d time.Duration)
	// Damage makes the record of one task unreadable, as a broken disk or another program
	// that writes to the database would.
	Damage func(t testing.TB, ref storage.Ref)
}

// Run tests every rule of the contract, or the rules of these topics if there are any,
// each as a parallel subtest of t.
func Run(t *testing.T, open Opener, topics ...string) {
	t.Helper()
	chosen, err := about(topics)
	if err != nil {
		t.Fatal(err)
	}
	for _, ru := range chosen {
		t.Run(ru.name, func(t *testing.T) {
			t.Parallel()
			ru.check(t, open, false)
		})
	}
}

// RunJumps tests the rules of a clock that is set while the storage runs, one after the
// other, so that they can share a server whose clock Opened.Jump sets. [Run] tests these
// rules too, but in parallel, so that each then needs its own clock.
func RunJumps(t *testing.T, open Opener) {
	for _, ru := range jumping() {
		t.Run(ru.name, func(t *testing.T) { ru.check(t, open, false) })
	}
}

// RunVirtual is [Run] with each rule in a testing/synctest bubble, for a storage
// that lives in the process and takes its time from package time. Advance defaults to
// time.Sleep. The storage must end its goroutines when it is closed, and never wait
// under a lock.
func RunVirtual(t *testing.T, open Opener) {
	for _, ru := range rules() {
		t.Run(ru.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { ru.check(t, open, true) })
		})
	}
}

// rule is one rule of the contract.
type rule struct {
	name   string
	test   func(*rig)
	says   string // the rule in a sentence, printed if it is broken
	limits storage.Limits
}

// state makes a rule.
func state(name string, test func(*rig), says string) rule {
	return rule{name: name, test: test, says: says}
}

// under returns the rule, to be tested on a storage with these limits.
func (ru rule) under(limits storage.Limits) rule {
	ru.limits = limits
	return ru
}

// rules lists all rules, topic by topic.
func rules() []rule {
	topics := [][]rule{
		insertRules(), bulkRules(), uniqueRules(), orderRules(), promoteRules(), claimRules(), recoverRules(),
		settleRules(), extendRules(), cursorRules(), cancelRules(), changeRules(),
		applyRules(), identityRules(), waitRules(), readRules(), queueRules(),
		keepRules(), limitRules(), textRules(), sharingRules(), clockRules(), jumpRules(),
		togetherRules(), listRules(), kindRules(), whyRules(), boundedRules(), partitionRules(), shareRules(),
	}
	var all []rule
	for _, topic := range topics {
		all = append(all, topic...)
	}
	return all
}

// jumping lists the rules that set the clock: all rules on jumps, and the rules on limits and partitions
// that name the clock.
func jumping() []rule {
	return slices.DeleteFunc(rules(), func(ru rule) bool {
		return !strings.HasPrefix(ru.name, "jump/") && !strings.Contains(ru.name, "clock")
	})
}

// about returns the rules of these topics, or all rules if there are no topics.
func about(topics []string) ([]rule, error) {
	if len(topics) == 0 {
		return rules(), nil
	}
	var chosen []rule
	found := make(map[string]bool)
	for _, ru := range rules() {
		topic, _, _ := strings.Cut(ru.name, "/")
		if slices.Contains(topics, topic) {
			chosen, found[topic] = append(chosen, ru), true
		}
	}
	for _, topic := range topics {
		if !found[topic] {
			return nil, fmt.Errorf("storagetest: there is no rule of the topic %q", topic)
		}
	}
	return chosen, nil
}

// check tests the rule on a storage of its own, and on another one if a try was late. t
// may be any TB, such as a TB that records failures.
func (ru rule) check(t testing.TB, open Opener, virtual bool) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the rule that is broken, %q: %s", ru.name, ru.says)
		}
	})
	for n := 1; n <= tries; n++ {
		if ru.inTurn(t, open, virtual, n) {
			return
		}
	}
}
