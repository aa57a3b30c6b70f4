package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/storage"
)

func TestTheStorageIsLookedOver(t *testing.T) {
	r := newRig(t)
	r.night()
	golden(t, "doctor", steady(r.transcript("", "doctor", "doctor -q --max-oldest 1m --max-dead 2", "doctor --max-dead 3 -o json",
		"doctor --max-oldest 0s", "doctor --max-dead -2", "doctor --max-oldest 1m --max-dead 2 --accept paused:reports --accept cause:3bixdebokt98e",
		"doctor --accept paused", "doctor --accept ''", "doctor --accept damaged:mail", "stats", "stats -o json")))
}

// TestKnownFindingsAreAccepted accepts findings in a profile, under the names that a report has for them.
func TestKnownFindingsAreAccepted(t *testing.T) {
	r := newRig(t)
	r.night()
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "none", ID: "x"}, Kind: "k"})
	r.env["XDG_CONFIG_HOME"] = t.TempDir()
	delete(r.env, connect.EnvStorage)
	file := filepath.Join(r.env["XDG_CONFIG_HOME"], "midge", "config.toml")
	profile := func(accept string) {
		text := "default = \"p\"\n[profiles.p]\nstorage = \"redis://localhost:6379\"\naccept = [" + accept + "]\n"
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	profile("")
	var report Report
	if got := r.run("doctor -o json"); got.code != Failed || json.Unmarshal([]byte(got.out), &report) != nil {
		t.Fatalf("got %+v", got)
	}
	var names []string
	for _, f := range report.Findings {
		names = append(names, strconv.Quote(f.Accept))
	}
	want := `"no-runner:none" "orphaned:reports/nightly" "cause:3bixdebokt98e" "paused:reports"`
	if got := strings.Join(names, " "); got != want {
		t.Fatalf("the findings are accepted by %s, want %s", got, want)
	}
	profile(strings.Join(names, ", "))
	if got := r.run("doctor --quiet --max-dead 0"); got != (answer{}) {
		t.Errorf("all is accepted: got %+v, want silence and 0", got)
	}
	if got := r.ok("doctor"); strings.Count(got, "accepted: ") != 4 || !strings.Contains(got, "All clear.") {
		t.Errorf("got %s, want what is accepted", got)
	}
	profile(`"nonsense"`)
	if got := r.run("doctor"); got.code != BadInput || !strings.Contains(got.err, `accept of profile p "nonsense": want one of paused:QUEUE`) {
		t.Errorf("got %+v", got)
	}
}

// TestNothingIsWellWithoutARunner asks for the state of a storage whose only runner has crashed.
func TestNothingIsWellWithoutARunner(t *testing.T) {
	r := newRig(t)
	r.night()
	for _, line := range []string{"queue resume reports", "task cancel state:live --yes", "task rm state:dead --yes"} {
		r.ok(line)
	}
	r.now = r.now.Add(2 * time.Hour) // beyond the last heartbeat
	said := "problem  No runner is alive. 2 schedules not ticking.\n         next: start the program that runs the jobs"
	for line, code := range map[string]int{"": Done, "doctor": Failed, "doctor --quiet": Failed} {
		got := r.run(line)
		first := strings.Index(got.out, "problem ")
		if first < 0 || !strings.HasPrefix(got.out[first:], said) || strings.Contains(got.out, "schedule rm") ||
			got.code != code {
			t.Errorf("midge %s: got %+v, want %d and first %q", line, got, code, said)
		}
	}
	got := r.run("doctor --quiet --accept no-runners")
	if got != (answer{}) {
		t.Errorf("all is accepted: got %+v, want silence and 0", got)
	}
}

// TestAQuietDoctorIsSilentWithoutAProblem checks a storage that has notices alone.
func TestAQuietDoctorIsSilentWithoutAProblem(t *testing.T) {
	r := newRig(t)
	r.night()
	r.ok("schedule rm reports/nightly --yes")
	if got := r.run("doctor"); got.code != Done || strings.Count(got.out, "notice ") != 2 {
		t.Errorf("got %+v, want two notices", got)
	}
	if got := r.run("doctor --quiet"); got != (answer{}) {
		t.Errorf("got %+v, want silence and 0", got)
	}
	if got := r.run("doctor --quiet --max-oldest 1m"); got.code != Failed ||
		strings.Count(got.out, "problem ") != 2 || strings.Count(got.out, "notice ") != 1 {
		t.Errorf("got %+v, want the old tasks of both queues, the paused one among them, and a notice", got)
	}
	if got := r.ok("doctor --quiet -o json"); !json.Valid([]byte(got)) {
		t.Errorf("got %q, want JSON", got)
	}
}

// TestManyCausesAreToldInPart lets tasks die of more causes than doctor reports.
func TestManyCausesAreToldInPart(t *testing.T) {
	r := newRig(t)
	for i := range 8 {
		for j := range 9 - i {
			r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: fmt.Sprintf("t%d%d", i, j)}, Kind: fmt.Sprint("k", j%4)})
		}
		r.work("mail", storage.Settle{Outcome: storage.Bury, Error: "cause " + string(rune('a'+i))})
	}
	got := r.ok("doctor")
	for _, want := range []string{
		"cause a. 9 tasks died: k0 (3), k1 (2), k2 (2) and 1 more kind. Since 0ms ago.\n",
		"cause e. 5 tasks died: k0 (2), k1 (1), k2 (1) and 1 more kind. Since 0ms ago.\n",
		"9 tasks died of 3 other causes.\n         next: midge task ls --by cause",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %q", got, want)
		}
	}
	if strings.Contains(got, "cause f") {
		t.Errorf("a sixth cause is told:\n%s", got)
	}
}

// TestManyTasksOfAnAcceptedCauseAreNotDead lets more tasks die than one read covers.
func TestManyTasksOfAnAcceptedCauseAreNotDead(t *testing.T) {
	r := newRig(t)
	for _, queue := range []string{"a", "b", "c"} {
		for range 8 {
			var tx storage.Tx
			for range 1000 {
				tx.Inserts = append(tx.Inserts, storage.Insert{
					Ref: storage.Ref{Queue: queue, ID: storage.NewID()}, Kind: "k", Encoding: "json", Payload: []byte("{}"), CrashLimit: 1,
				})
			}
			if _, err := r.session.ApplyOne(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
		}
		for range 80 {
			r.work(queue, storage.Settle{Outcome: storage.Bury, Error: "the disk is full"})
		}
	}
	cause := strings.Fields(r.ok("task ls --by cause -o ids"))[0]
	if got := r.run("doctor -q --max-dead 10 --accept " + cause); got.code != Done {
		t.Errorf("got %+v, want nothing to do", got)
	}
	if got := r.run("doctor -q --max-dead 10"); got.code != Failed || !strings.Contains(got.out, "24,000 tasks died") {
		t.Errorf("got %+v, want too many", got)
	}
}
