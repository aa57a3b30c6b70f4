package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is the path of the root's module.
const module = "github.com/midgehq/midge"

// A run is a call of go test.
type run struct {
	dir  string   // relative to the root; "" is the root
	args []string // the arguments of go test
	nice bool     // whether it has a lower priority
}

// A lane is a sequence of runs. Lanes run side by side, and once a lane has done its own runs it takes part
// in the runs that all share.
type lane []run

// storm is the test in which all faults of the fault tests happen at once.
const storm = "TestAStorm"

// sequences matches tests of users, the ledger, the dashboard, the contract, Redis, PostgreSQL and SQLite
// that make one call after the other, or start processes that do so. All other tests of these packages run
// under the race detector, and so does the contract on PostgreSQL and memory.
const sequences = "^(ExampleUsers|Test(" +
	"RedactionOfALongTextIsQuick|NewPasswordsTakeSoManyRounds|OneUserIsNotChanged|FailedLoginsAreThrottled|" +

	"ADayOfWrites|TheHoursBehindAJumpAreGathered|SmallPayloads|AShortJumpDeletesNothing|TheAuditIsTrimmed|" +
	"APageIsReadAsItWasWritten|" +

	"WhatOthersWroteIsTextOnly|ALargeTaskIsSaved|AGetChangesNothing|AColumnOrdersTheQueues|" +
	"AFormThatIsTooLargeIsRefused|ACauseHasAPage|NothingHasDiedForAWhile|ATaskIsEnqueuedFromAPage|" +
	"OnlyWhoMayEditSendsLongForms|PagesAskTheStorageForLittle|PagesAreSmall|AColumnOrdersItsList|" +
	"TheClientIsNamedByTrustedProxiesAlone|" +

	"AClaimEndsABatchOfUnknownKinds|TheShortClaimIsTheGeneralOne|\\w+Holds?NobodyUp|" +
	"ARecordUnderAnInvalidIDIsSetApart|ATaskThatAWrongClockDeclinedKeepsNoneFromDying|" +
	"AMemberThatStandsForNoDeclinedTaskIsSetApart|ATaskWithADamagedRecordKeepsItsID|" +
	"ScriptsChangeNothingWhereTheyFail|ContractOnMiniredis|" +

	"ClaimsReadALimitAsTheEngineDoes|ARateIsThatOfTheEngine|ARateAdmitsCostsAsTheContractSays|" +
	"PartitionsLeaveNothingBehind|NoRowIsLeftOfPartitions|PlansNeedNoStatistics|JobsOfDamagedRowsAreNull|" +

	"ContractOnRedis|ContractOnCluster|ContractOnSQLite|ContractWithoutShortWays|Jumps|JumpsOnRedis|JumpsOnCluster|" +

	"AFullDiskLosesNothing|OpenFindsACopyThatIsMalformed|DescribeReadsAFewPages|APowerCutLosesNothing|" +
	"KilledProcessesLoseNothing|AFileStaysSmall|ModelsHoldOnASlowMachine))$"

// leased are the packages of the root's module whose tests keep leases of a second or two.
var leased = []string{"./storage/postgres", "./storage/redis", "./internal/pgfault"}

// longest are the packages of the root's module that start first beside them, so that no long one
// is the last. All begin goroutines.
var longest = []string{"./dashboard", "./storage/storagetest", "./internal/ledger", "."}

// plan returns all tests of the repository: the runs of three lanes, and the runs that they share. The
// third lane has no runs of its own. Two processors are busy with three lanes: each lane waits for
// programs, servers and timers, and links one program at a time.
//
// The tests of the first lane, and of the first run of the second, keep leases of a second or two, start
// servers and processes, and wait for much of their time: alone, the tests of PostgreSQL and Redis use a
// third of two processors. All other tests compute, or wait for programs without leases. They have a lower
// priority, so that they use the processors while the leased tests wait, and starve none of their leases.
//
// Everything runs under the race detector, except for four kinds of tests. In a package that begins no
// goroutine, neither in its code nor in its tests, the detector can find nothing. The fault tests,
// including those of pgfault, and the tests of the command and of the browser start hundreds of
// processes, which take two to three times as long with it; of the fault tests only the storm runs
// under it. The random sequences, and the tests that sequences matches, take two to ten times as long
// with it, and make one call after the other; make test-long runs all of them under it.
func plan(ctx context.Context) (lanes []lane, shared []run, err error) {
	concurrent, sequential, err := others(ctx)
	if err != nil {
		return nil, nil, err
	}
	lanes = []lane{
		{
			{args: append(raced("-p", "2", "-skip", sequences), leased[:2]...)},
			{args: plain(leased[2:]...)},
			{dir: "internal/faulttest", args: plain("-skip", storm, ".")},
			{dir: "internal/faulttest", args: raced("-run", storm, ".")},
		},
		{
			{args: append(plain("-p", "1", "-run", sequences), leased[:2]...)},
			{args: append(raced("-p", "1", "-skip", sequences), longest...), nice: true},
		},
		{},
	}
	shared = []run{ // the longest first; bench waits most of its time
		{dir: "bench", args: plain("./...")},
		{dir: "internal/difftest", args: plain("./...")},
		{args: append(raced("-p", "1", "-skip", sequences), concurrent...)},
		{dir: "storage/sqlite/modernc", args: raced("-skip", sequences, "./...")},
		{dir: "dashboard/browser", args: plain("./...")},
		{dir: "cmd/midge", args: plain("./...")},
		{dir: "storage/sqlite/modernc", args: plain("-run", sequences, ".")},
		{args: plain("-p", "1", "-run", sequences, "./access", "./internal/ledger", "./dashboard",
			"./storage/storagetest")},
		{args: append(plain("-p", "1"), sequential...)},
		{dir: "examples/shop", args: plain("./...")},
		{dir: "examples/embedded", args: plain("./...")},
		{dir: "examples/onboarding", args: plain("./...")},
		{dir: "metrics/prometheus", args: plain("./...")},
		{dir: "tracing/otel", args: plain("./...")},
	}
	for i := range shared {
		shared[i].nice = true
	}
	return lanes, shared, nil
}

// others returns the packages of the root's module that are neither in leased nor in longest. The packages in
// concurrent begin goroutines, and the packages in sequential begin none.
func others(ctx context.Context) (concurrent, sequential []string, err error) {
	list, err := exec.CommandContext(ctx, "go", "list", "./...").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list: %w", err)
	}
	for path := range strings.FieldsSeq(string(list)) {
		name := "." + strings.TrimPrefix(path, module)
		if slices.Contains(leased, name) || slices.Contains(longest, name) {
			continue
		}
		switch begins, err := beginsGoroutines(name); {
		case err != nil:
			return nil, nil, err
		case begins:
			concurrent = append(concurrent, name)
		default:
			sequential = append(sequential, name)
		}
	}
	return concurrent, sequential, nil
}

// goroutine matches code that begins a goroutine.
var goroutine = regexp.MustCompile(`(?m)^\s*go \w.*\(|\.(Go|Parallel|AfterFunc|NewServer)\(`)

// beginsGoroutines reports whether the code or the tests of a package begin a goroutine.
func beginsGoroutines(dir string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil || goroutine.Match(text) {
			return true, err
		}
	}
	return false, err
}

// plain returns the arguments of a run. make lint vets the packages, so go test need not do so. The timeout
// ends only tests that hang: beside programs of a higher priority, a run of the lower one takes ten times as
// long.
func plain(args ...string) []string { return append([]string{"-vet=off", "-timeout", "60m"}, args...) }

// raced returns the arguments of a run under the race detector.
func raced(args ...string) []string { return append(plain(detector...), args...) }

// detector are the flags of go build for the race detector.
//
// SQLite's C code, translated to Go, and miniredis' interpreter of scripts run in only one thread at a
// time, and are up to ten times slower under the race detector, so they are compiled without it.
// SQLite's driver is compiled with it, like all other code: a generic function of the standard library
// that the driver shares with midge may be linked from either, and without the detector's
// instrumentation it would be reported as a race.
//
// Nothing is compiled with debugging information, which go test does not link, and which is a seventh of
// the compiler's work. Runs without the detector share their compiled packages with the linters and with go
// test by hand, so they have it.
var detector = []string{
	"-race", "-gcflags=all=-dwarf=false",
	"-gcflags=modernc.org/libc/...=-dwarf=false -race=false",
	"-gcflags=modernc.org/sqlite/lib=-dwarf=false -race=false",
	"-gcflags=github.com/yuin/gopher-lua/...=-dwarf=false -race=false",
}

// compile compiles the packages of the root that are no programs, with the race detector and without.
// Otherwise tests that begin side by side would each compile the packages that they share.
func compile(ctx context.Context) error {
	libraries := `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`
	list, err := exec.CommandContext(ctx, "go", "list", "-f", libraries, "./...").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	flags := [][]string{detector, nil}
	return beside(len(flags), func(i int) error {
		args := slices.Concat([]string{"build"}, flags[i], strings.Fields(string(list)))
		if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w:\n%s", err, out)
		}
		return nil
	})
}
