package filter

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/fingerprint"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func aTask() storage.Task {
	return storage.Task{
		Ref: storage.Ref{Queue: "mail:eu", ID: "01abc"}, Kind: "send_welcome", Encoding: "json",
		Payload: []byte(`{"user":{"id":42,"name":"Ann Bee"},"total":99.5,"at":"2026-11-20T00:00:00Z",` +
			`"lines":[{"sku":"a1"},{"sku":"b2"}],"ok":true,"none":null,"odd.name":1,"big":9007199254740993}`),
		Headers: map[string]string{"tenant": "acme", "midge.tick": "x y"}, Partition: "acme west",
		State: storage.Dead, Priority: -3, Retries: 4, Crashes: 1, CrashLimit: 3, Created: now.Add(-2 * time.Hour),
		Ended: now.Add(-time.Minute), Expires: now.Add(time.Hour), Reason: storage.ReasonCrashes,
		Attempts: []storage.Attempt{
			{Runner: "r1", Error: "dial: Timed Out (i/o)"}, {Outcome: storage.AttemptRequeued},
		},
	}
}

func TestMatch(t *testing.T) {
	for text, want := range map[string]bool{
		``:                                  true,
		`kind:send_*`:                       true,
		`kind:send`:                         false,
		`kind:*_wel*`:                       true,
		`kind:x,send_welcome`:               true,
		`kind:"send_*"`:                     false,
		`-kind:send_*`:                      false,
		`retries>3 crashes<2`:               true,
		`cost:1 cost<2 -cost>1`:             true,
		`cost:0`:                            false,
		`retries>=5`:                        false,
		`retries:3,4`:                       true,
		`partition:"acme west"`:             true,
		`partition="acme west",b`:           true,
		`partition:acme*`:                   true,
		`partition:acme`:                    false,
		`partition:""`:                      false,
		`priority:-3`:                       true,
		`priority<=-4`:                      false,
		`age>1h age<3h`:                     true,
		`age>1d`:                            false,
		`ended<2m`:                          true,
		`ended<30s`:                         false,
		`created>2026-11-23`:                true,
		`created:2026-11-23`:                true,
		`created:2026-11-22`:                false,
		`created>2026-11-23T10:30:00+01:00`: true,
		`expires<2h`:                        true,
		`expires<30m`:                       false,
		`due:no`:                            true,
		`due:yes`:                           false,
		`due<10m`:                           false,
		`declined:no`:                       true,
		`error:"timed out"`:                 true,
		`error:timed*i/o`:                   true,
		`error:refused`:                     false,
		`-reason:"crash loop"`:              false,
		`cause:` + fingerprint.OfText("dial: Timed Out (i/o)").ID: true,
		`cause:other`:                 false,
		`reason:CRASH`:                true,
		`header.tenant:acme`:          true,
		`header.tenant:a*,b`:          true,
		`header.midge.tick:"x y"`:     true,
		`header.none:*`:               false,
		`-header.none:*`:              true,
		`params.user.id:42`:           true,
		`params.user.id:42.0`:         true,
		`params.user.id:4`:            false,
		`params.user.id>41.5`:         true,
		`params.user.name:Ann*`:       true,
		`params.total<99.5`:           false,
		`params.total<=99.5`:          true,
		`params.at>2026-11-19`:        true,
		`params.at>2026-11-21`:        false,
		`params.lines.sku:b2`:         true,
		`params.lines.0.sku:b2`:       false,
		`params.lines.1.sku:b2`:       true,
		`params.lines.-1.sku:b2`:      false,
		`params.ok:true`:              true,
		`params.none:null`:            true,
		`params."odd.name":1`:         true,
		`params.big:9007199254740993`: true,
		`params.big:9007199254740992`: false,
		`params.user:42`:              false,
		`queue:mail:*`:                true,
		`queue:mail:eu,x`:             true,
		`queue:mail`:                  false,
		`-queue:mail:us`:              true,
		`id:01abc`:                    true,
		`id:01*`:                      true,
		`runner:r1`:                   true,
		`state:dead,retry`:            true,
		`state:live`:                  false,
		`state:ended`:                 true,
		`-state:dead`:                 false,
		`is:unique`:                   false,
		`is:suspect`:                  false, // the task does not wait
		`attempts:2 size>10`:          true,
		`encoding:json`:               true,
		`eu/01a`:                      true,
		`TIMED`:                       true,
		`-nothing`:                    true,
		`"a:b"`:                       false,
	} {
		f, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.At(now).Match(aTask()); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
		again, err := Parse(f.String())
		if err != nil || again.String() != f.String() || again.At(now).Match(aTask()) != want {
			t.Errorf("%s: printed as %s, which is read as %s, %v", text, f, again, err)
		}
	}
}

// TestQuotesWithNothingInThemMeanNone has each field that takes a text, with a task that has such a text and with a
// task that has none.
func TestQuotesWithNothingInThemMeanNone(t *testing.T) {
	full := aTask()
	full.Runner, full.Headers["none"] = "r1", ""
	full.Payload = []byte("\x83\xa4text\xa1a\xa4none\xa0\xa4blob\xc4\x01a") // MessagePack: two texts, and bytes
	full.Encoding = "msgpack"
	empty := storage.Task{Ref: storage.Ref{Queue: "q", ID: "a"}, Kind: "k", State: storage.Waiting, Encoding: "msgpack"}
	for text, want := range map[string][2]bool{
		`error:""`: {false, true}, `-error:""`: {true, false}, `error:"",timed`: {true, true}, `error:*`: {true, true},
		`reason:""`: {false, true}, `-reason:""`: {true, false}, `reason:"",nothing`: {false, true},
		`cause:""`: {false, true}, `partition:""`: {false, true}, `runner:""`: {false, true},
		`queue:""`: {false, false}, `kind:""`: {false, false}, `id:""`: {false, false}, `encoding:""`: {false, false},
		`header.none:""`: {true, false}, `header.tenant:""`: {false, false},
		`params.none:""`: {true, false}, `params.text:""`: {false, false},
		`params.blob:""`: {false, false}, `params.blob:*`: {true, false}, `params.blob:a`: {false, false},
	} {
		f, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := [2]bool{f.At(now).Match(full), f.At(now).Match(empty)}; got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// TestNumbersInParametersAreCompared checks that numbers with many digits are compared exactly.
func TestNumbersInParametersAreCompared(t *testing.T) {
	for _, c := range []struct {
		n, word string
		want    bool
	}{
		{`123456789012345678901234`, `:123456789012345678901234`, true},
		{`123456789012345678901234`, `:123456789012345678901235`, false},
		{`123456789012345678901234`, `<123456789012345678901235`, true},
		{`0.1234567890123456789`, `:0.1234567890123456789`, true},
		{`0.1234567890123456789`, `:0.1234567890123456788`, false},
		{`18446744073709551616`, `>18446744073709551615`, true},
		{`9007199254740993`, `:9007199254740993`, true},
		{`9007199254740993`, `>9007199254740992`, true},
		{`9007199254740993`, `:9007199254740992`, false},
		{`1.50`, `:1.5`, true},
		{`10.0`, `:10`, true},
		{`-0.0`, `:0`, true},
		{`1e5`, `:100000`, true},
		{`100000`, `:1e5`, true},
		{`-3`, `<-2`, true},
		{`-3`, `>-2.5`, false},
		{`2`, `<=+2.0`, true},
		{`1E-3`, `:0.001`, true},
		{`1e400`, `>5`, true},
		{`-1e999999999`, `<5`, true},
		{`1e-999999999`, `<1`, true},
		{`1e999999999`, `:1e5`, false},
		{`"NaN"`, `:1`, false},
		{`"12"`, `:12`, true},
		{`"12"`, `:12.0`, false},
		{`"12"`, `>1`, false},
		{`17`, `:0x11`, false},
		{`1`, `:1/1`, false},
		{`10`, `:1_0`, false},
		{`4`, `:1p2`, false},
		{`[1,2,3]`, `>2.5`, true},
	} {
		f, err := Parse("params.n" + c.word)
		if err != nil {
			t.Errorf("n%s: %v", c.word, err)
			continue
		}
		task := storage.Task{Ref: storage.Ref{Queue: "q", ID: "a"}, Encoding: "json", Payload: []byte(`{"n":` + c.n + `}`), State: storage.Waiting}
		if got := f.Match(task); got != c.want {
			t.Errorf("%s%s: got %v, want %v", c.n, c.word, got, c.want)
		}
	}
}

// TestMomentsInParametersAreCompared has each form in which a moment is stored, and each in which a filter names one.
func TestMomentsInParametersAreCompared(t *testing.T) {
	like := []byte("\x81\xa2at\xd6\xff\x00\x00\x00\x01") // a moment in MessagePack
	for _, c := range []struct {
		stored, word string
		want         bool
	}{
		{`"2026-11-22"`, `:2026-11-22`, true},
		{`"2026-11-22"`, `:2026-11-2*`, true},
		{`"2026-11-22"`, `:2026-11-22T00:00:00Z`, true},
		{`"2026-11-22"`, `<2026-11-23`, true},
		{`"2026-11-22"`, `<=2026-11-22`, true},
		{`"2026-11-22"`, `>=2026-11-22`, true},
		{`"2026-11-22"`, `>2026-11-22`, false},
		{`"2026-11-22"`, `>2026-11-21T23:59`, true},
		{`"2026-11-22T10:00"`, `<2026-11-23`, true},
		{`"2026-11-22T10:00:00"`, `:2026-11-22`, true},
		{`"2026-11-23T10:00:00+01:00"`, `:2026-11-23`, true},
		{`"2026-11-23T00:30:00+01:00"`, `:2026-11-23`, false}, // it is the 22nd in UTC
		{`"2026-11-23T00:30:00+01:00"`, `:2026-11-24,2026-11-22`, true},
		{`"2026-11-23T10:00:00+01:00"`, `:2026-11-23T09:00:00Z`, true},
		{`"2026-11-23T10:00:00+01:00"`, `:2026-11-23T09:00`, true},
		{`"2026-11-23T10:00:00+01:00"`, `:2026-11-23T10:00:00+01:00`, true},
		{`"2026-11-23T10:00:00+01:00"`, `:2026-11-23T10:00:00Z`, false},
		{`"2026-11-23T09:00:00.000000001Z"`, `:2026-11-23T09:00:00Z`, false},
		{`"2026-11-24T00:00:00Z"`, `:2026-11-23`, false},
		{`"0001-01-01T00:00:00Z"`, `<2026-11-23`, false}, // the zero time is no moment
		{`"0001-01-01T00:00:00Z"`, `:0001-01-01T00:00:00Z`, true},
		{`null`, `:0001-01-01T00:00:00Z`, false},
		{`5`, `:0001-01-01`, false},
		{`"soon"`, `:0001-01-01T00:00:00Z`, false},
		{`["x","2026-11-23T10:00:00Z"]`, `:2026-11-23`, true},
		{`20261123`, `:2026-11-23`, false},
		{`"soon"`, `<2026-11-23`, false},
		{`"2026-13-45"`, `:2026-13-45`, true}, // a text
	} {
		f, err := Parse("params.at" + c.word)
		if err != nil {
			t.Errorf("at%s: %v", c.word, err)
			continue
		}
		task := storage.Task{Ref: storage.Ref{Queue: "q", ID: "a"}, Encoding: "json", State: storage.Waiting}
		task.Payload = []byte(`{"at":` + c.stored + `}`)
		if got := f.Match(task); got != c.want {
			t.Errorf("%s%s: got %v, want %v", c.stored, c.word, got, c.want)
		}
		if !strings.HasPrefix(c.stored, `"`) || !strings.ContainsAny(c.stored, "Z+") {
			continue // MessagePack has no such moment
		}
		if task.Payload, err = payload.Encode("msgpack", task.Payload, like); err != nil {
			t.Fatal(err)
		}
		task.Encoding = "msgpack"
		if got := f.Match(task); got != c.want {
			t.Errorf("%s in MessagePack%s: got %v, want %v", c.stored, c.word, got, c.want)
		}
	}
}

// TestANumberTakesNoTimeBeyondItsDigits bounds the time of numbers with huge exponents, in a filter and in
// parameters.
func TestANumberTakesNoTimeBeyondItsDigits(t *testing.T) {
	for _, text := range []string{"1p9999999", "1e9999999", "1e-9999999", "0x1p9999999", "1/" + strings.Repeat("9", 50), strings.Repeat("9", 4000)} {
		if _, err := Parse("params.n>" + text); err == nil {
			t.Errorf("params.n>%.20s is taken as a number", text)
		}
	}
	task := storage.Task{Ref: storage.Ref{Queue: "q", ID: "a"}, Encoding: "json", State: storage.Waiting}
	for _, n := range []string{"1", "1e999999999", "1e-999999999", strings.Repeat("9", 2000)} {
		task.Payload = []byte(`{"n":[` + strings.Repeat(n+",", 2000) + n + `]}`)
		for _, word := range []string{":1p9999999", ":1e399", ":17", ":1e-300", ">1e300"} {
			f, err := Parse("params.n" + word)
			if err != nil {
				t.Fatal(err)
			}
			begun := testserver.ProcessorTime(t)
			f.Match(task)
			if took := testserver.ProcessorTime(t) - begun; took > time.Minute {
				t.Errorf("n%s of %.20s took %v", word, n, took)
			}
		}
	}
}

// TestAMomentCenturiesAheadIsNotSoon checks a moment that is further away than the longest time.Duration.
func TestAMomentCenturiesAheadIsNotSoon(t *testing.T) {
	task := aTask()
	task.State, task.Due = storage.Scheduled, now.AddDate(2000, 0, 0)
	for text, want := range map[string]bool{"due<10m": false, "due>10m": true} {
		f, err := Parse(text)
		if got := f.At(now).Match(task); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestFlags(t *testing.T) {
	waiting := storage.Task{State: storage.Waiting, Crashes: 2, CrashLimit: 3, Declined: now, PassedOver: storage.PassedOverStartOnly}
	pending := storage.Task{State: storage.Pending, Started: true, CancelAsked: true, Claimed: now.Add(-time.Hour)}
	for text, want := range map[string][2]bool{
		`is:suspect`: {true, false}, `is:declined`: {true, false}, `is:start-only`: {true, false}, `-is:declined`: {false, true},
		`is:started`: {false, true}, `is:ahead`: {false, false}, `is:cancel-asked,declined`: {true, true},
		`started>30m`: {false, true}, `declined:yes`: {true, false},
	} {
		f, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		f = f.At(now)
		if got := [2]bool{f.Match(waiting), f.Match(pending)}; got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// TestAWordInQuotesIsSearchedFor searches for texts that would mean something without quotes, and writes them so.
func TestAWordInQuotesIsSearchedFor(t *testing.T) {
	for _, text := range []string{"OR", "AND", "NOT", "||", "&&", "or", "ORacle", "-OR"} {
		for _, words := range []string{Quote(text), `"` + text + `"`} {
			f, err := Parse(words)
			if err != nil || !f.Match(storage.Task{Kind: "a", State: storage.Waiting, Ref: storage.Ref{Queue: "x" + text}}) {
				t.Errorf("%s: got %v, want the tasks with %s", words, err, text)
			}
		}
	}
}

func TestAWordThatCannotBeReadIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		`kind:a kin:b`: `filter: the field in "kin:b" at character 8: want kind, or another of queue`,
		`foo.bar:x`:    `filter: the field in "foo.bar:x" at character 1: want one of queue state kind`,
		`state:done`: `filter: the state in "state:done" at character 1: want one of waiting, running, ` +
			`scheduled, retry, completed, cancelled, dead, live, ended or all`,
		`state:d*`:                           `filter: the state in "state:d*"`,
		`priority=5 OR kind:x`:               `filter: the word in "OR" at character 12: want words that must all match, with a,b for either and -a for not; the text itself in quotes`,
		`a AND b`:                            `the word in "AND" at character 3`,
		`NOT kind:x`:                         `the word in "NOT"`,
		`a || b`:                             `the word in "||"`,
		`a && b`:                             `the word in "&&"`,
		`created>2026-13-45`:                 `want created>1h, created>2026-11-23 or created>2026-11-23T10:00:00Z, or behind : a day, yes or no`,
		`age>90`:                             `a duration with its unit`,
		`age:1h`:                             `a duration with its unit behind > or <`,
		`ended:1h`:                           `behind : a day, yes or no`,
		`due>tomorrow`:                       `due>2026-11-23`,
		`retries>many`:                       `an integer`,
		`retries>1,2`:                        `one value without * behind >`,
		`kind>a`:                             `filter: the operator > in "kind>a" at character 1: want : behind kind`,
		`kind:`:                              `a value, or "" for none`,
		`kind:a,`:                            `a value, or "" for none`,
		`kind:"a`:                            `a second quote`,
		`header:x`:                           `header.NAME`,
		`params.:x`:                          `params.NAME`,
		`kind.a:x`:                           `kind without a dot`,
		`""`:                                 `the word in "\"\"" at character 1: want a text between the quotes`,
		`-""`:                                `a text between the quotes`,
		`kind:x a,""`:                        `a text between the quotes`,
		`a,`:                                 `want a text`,
		`params.a>b`:                         `a number or a moment such as 2026-11-23 or 2026-11-23T10:00:00Z behind >`,
		`params.a<1h`:                        `a number or a moment such as`,
		`is:old`:                             `one of declined suspect`,
		`-`:                                  `a word behind the -`,
		"a\xff":                              `valid UTF-8`,
		strings.Repeat("a ", 200):            `at most 100 words`,
		strings.Repeat("-params.a.b:x ", 11): `at most 10 words about parameters`,
		strings.Repeat("a", 5000):            `at most 4096 bytes`,
	} {
		_, err := Parse(text)
		var wrong *Error
		var invalid *storage.InvalidError
		if !errors.As(err, &wrong) || !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: got %v, want %s", text, err, want)
		}
	}
}

func TestWhatAFilterNamesNarrowsWhatIsRead(t *testing.T) {
	for text, want := range map[string][3]string{ // names, prefix, states
		``:                       {"nil", "", "waiting pending scheduled retry"},
		`queue:b,a,b`:            {"a b", "", "waiting pending scheduled retry"},
		`queue:a -queue:a`:       {"", "", "waiting pending scheduled retry"},
		`queue:mail* state:dead`: {"nil", "mail", "dead"},
		`queue:m*,n*`:            {"nil", "", "waiting pending scheduled retry"},
		`-state:waiting,retry`:   {"nil", "", "pending scheduled"},
		`state:running,retry`:    {"nil", "", "pending retry"},
		`-state:running`:         {"nil", "", "waiting scheduled retry"},
		`ended<1h -state:dead`:   {"nil", "", "completed cancelled"},
		`due<1h`:                 {"nil", "", "scheduled retry"},
		`due<1h state:cursor`:    {"nil", "", "cursor"},
		`is:declined`:            {"nil", "", "waiting"},
		`is:declined,unique`:     {"nil", "", "waiting pending scheduled retry"},
		`state:dead state:retry`: {"nil", "", ""},
		`queue:midge.ledger`:     {"midge.ledger", "", "waiting pending scheduled retry"},
	} {
		f, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		names, prefix := f.Queues()
		got := [3]string{strings.Join(names, " "), prefix}
		if names == nil {
			got[0] = "nil"
		}
		var states []string
		for _, s := range f.States(storage.Waiting, storage.Pending, storage.Scheduled, storage.Retry) {
			states = append(states, string(s))
		}
		if got[2] = strings.Join(states, " "); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestAFilterNamesOnePartition checks which filters let a search read the line of one partition alone.
func TestAFilterNamesOnePartition(t *testing.T) {
	for text, want := range map[string]string{
		`partition:acme kind:a`: "acme", `kind:a partition="a b*"`: "a b*", `partition:a,b`: "", `partition:a*`: "",
		`-partition:acme`: "", `partition:""`: "", `acme`: "", ``: "", `partition:a,b partition:b`: "b",
	} {
		f, err := Parse(text)
		if got := f.Partition(); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestHiddenQueuesMatchOnlyWhereNamed(t *testing.T) {
	for text, want := range map[string]bool{``: false, `queue:*`: false, `queue:midge.*`: true, `queue:midge.ledger`: true, `-queue:x`: false} {
		f, err := Parse(text)
		if got := f.MatchQueue("midge.ledger"); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestAFilterSaysWhichFieldsItLooksAt(t *testing.T) {
	f, err := Parse(`params.card.number:4* -header.midge.tick:x kind:a`)
	want := [][]string{{"params", "card", "number"}, {"header", "midge.tick"}}
	if got := f.Fields(); err != nil || !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "2d12h": 60 * time.Hour, "1w1d": 8 * 24 * time.Hour, "0s": 0, "1h30m": 90 * time.Minute, "3d": 72 * time.Hour,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "90", "0", "-1h", "1d-1h", "d", "1.5d", "99999999999999d", "4000000000w", "36500d1h", "1h1d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestSyntaxNamesEachField(t *testing.T) {
	for _, f := range fields {
		if !strings.Contains(Syntax, strings.TrimSuffix(f.name, ".")) {
			t.Errorf("the summary leaves out %s", f.name)
		}
	}
	for _, f := range flags {
		if !strings.Contains(Syntax, f.name) {
			t.Errorf("the summary leaves out is:%s", f.name)
		}
	}
	if lines := strings.Split(Syntax, "\n"); slices.ContainsFunc(lines, func(l string) bool { return len(l) > 100 }) {
		t.Error("a line of the summary has more than 100 characters")
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`kind:send_* retries>3 age>1h error:"timed out" header.tenant:acme params.user.id:42 -reason:"crash loop"`,
		`"a\"b" \* -"x"`, `params."a.b".c<=1.5`, `created>2026-11-23 due:no is:unique`, `-"-a" a,b,""`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		one, err := Parse(text)
		if err != nil {
			return
		}
		printed := one.String()
		two, err := Parse(printed)
		if err != nil {
			if len(printed) > maxText {
				return
			}
			t.Fatalf("%q is printed as %q: %v", text, printed, err)
		}
		if two.String() != printed || one.At(now).Match(aTask()) != two.At(now).Match(aTask()) {
			t.Fatalf("%q is printed as %q, and that as %q", text, printed, two.String())
		}
	})
}
