package midgetest_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/midgetest"
	"github.com/midgehq/midge/storage/memory"
)

// mail and sheet are the jobs of these tests.
type (
	mail  struct{ To, Text string }
	sheet struct {
		Pages int
		When  time.Time
	}
)

func (sheet) Options() midge.Options {
	return midge.Options{Queue: "paper", Unique: &midge.Unique{By: []string{"Pages"}}, Keep: midge.Keep{For: time.Hour}}
}

// fake is a test that records how it failed.
type fake struct {
	testing.TB

	failure string
	logs    []string
}

func (f *fake) Helper() {}

func (f *fake) Fatalf(format string, args ...any) {
	f.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *fake) Errorf(format string, args ...any) { f.failure = fmt.Sprintf(format, args...) }

func (f *fake) Logf(format string, args ...any) {
	f.logs = append(f.logs, fmt.Sprintf(format, args...))
}

// failure returns the text with which a test fails, "" if it does not fail.
func failure(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	f := &fake{TB: t}
	done := make(chan struct{})
	go func() { // ends with the test: a failure ends its goroutine
		defer close(done)
		test(f)
	}()
	<-done
	return f.failure
}

// wantFailure checks the text with which a test fails, with ID in place of the ids of tasks.
func wantFailure(t *testing.T, want string, test func(t testing.TB)) {
	t.Helper()
	got := regexp.MustCompile(`/[0-9a-v]{26}`).ReplaceAllString(failure(t, test), "/ID")
	if got != want {
		t.Errorf("the failure is\n%s\nwant\n%s", got, want)
	}
}

func newClient(t testing.TB) *midge.Client {
	t.Helper()
	store, err := memory.Open(memory.Config{})
	must(t, err)
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(t, err)
	return client
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func enqueue(t testing.TB, client *midge.Client, job any, opts ...midge.Option) midge.Task {
	t.Helper()
	task, err := client.Enqueue(t.Context(), job, opts...)
	must(t, err)
	return task
}

func TestRequireEnqueuedFindsTheOneThatMatches(t *testing.T) {
	client := newClient(t)
	enqueue(t, client, mail{To: "ann", Text: "hello"})
	bob := enqueue(t, client, mail{To: "bob"}, midge.In(time.Hour), midge.Priority(3), midge.To("slow"),
		midge.Header("tenant", "7"), midge.Timeout(0), midge.Partition("acme"), midge.Cost(5))
	enqueue(t, client, sheet{Pages: 3, When: time.Now()})
	for name, match := range map[string]midgetest.Match{
		"params":   midgetest.Params(mail{To: "bob"}),
		"where":    midgetest.Where(func(m mail) bool { return m.To == "bob" }),
		"in":       midgetest.With(midge.In(time.Hour)),
		"acme":     midgetest.With(midge.Partition("acme")),
		"cost":     midgetest.With(midge.Cost(5)),
		"priority": midgetest.With(midge.Priority(3)),
		"queue":    midgetest.With(midge.To("slow")),
		"header":   midgetest.With(midge.Header("tenant", "7")),
		"id":       midgetest.With(midge.ID(bob.ID)),
		"several":  midgetest.With(midge.To("slow"), midge.Priority(3), midge.Retries(20), midge.Timeout(0), midge.NotUnique()),
	} {
		if found := midgetest.RequireEnqueued[mail](t, client, match); found.Ref != bob.Ref || found.Job.To != "bob" {
			t.Errorf("%s: found %s for %s, want %s for bob", name, found.Ref, found.Job.To, bob.Ref)
		}
	}
	midgetest.RequireEnqueued[mail](t, client, midgetest.With(midge.To("default"), midge.Priority(0)))
	if all := midgetest.All[mail](t, client); len(all) != 2 || all[0].Job.To != "ann" {
		t.Errorf("all are %v, want ann's and bob's", all)
	}
	midgetest.RequireEnqueued[mail](t, client, midgetest.Times(2))
	if ann := midgetest.RequireEnqueued[mail](t, client, midgetest.With(midge.In(0))); ann.Job.To != "ann" {
		t.Errorf("found %s with In(0), want ann, whose task is due now", ann.Job.To)
	}
	midgetest.RequireNone[mail](t, client, midgetest.With(midge.Priority(4)))
	midgetest.RequireNone[mail](t, client, midgetest.With(midge.To("default"), midge.Timeout(0))) // ann's is the runner's
}

func TestWithReadsEachOption(t *testing.T) {
	client := newClient(t)
	at := time.Now().Add(time.Hour)
	enqueue(t, client, sheet{Pages: 3}, midge.At(at), midge.Deadline(at.Add(time.Minute)), midge.Timeout(0),
		midge.Header("tenant", "7"), midge.Header("empty", ""))
	for name, test := range map[string]struct {
		yes, no midge.Option
	}{
		"queue":      {midge.To("paper"), midge.To("default")},
		"partition":  {midge.Partition(""), midge.Partition("acme")},
		"cost":       {midge.Cost(1), midge.Cost(0)},
		"priority":   {midge.Priority(0), midge.Priority(1)},
		"retries":    {midge.Retries(20), midge.Retries(1)},
		"crashes":    {midge.CrashLimit(3), midge.CrashLimit(4)},
		"deadline":   {midge.Deadline(at.Add(time.Minute)), midge.Deadline(at.Add(time.Hour))},
		"timeout":    {midge.Timeout(0), midge.Timeout(time.Hour)},
		"keep":       {midge.KeepFor(time.Hour), midge.KeepFor(2 * time.Hour)},
		"header":     {midge.Header("tenant", "7"), midge.Header("tenant", "")},
		"no header":  {midge.Header("empty", ""), midge.Header("none", "")},
		"now":        {midge.At(at), midge.In(0)},
		"at":         {midge.At(at), midge.At(at.Add(time.Second))},
		"unique":     {midge.Unique{By: []string{"Pages"}}, midge.Unique{}},
		"not unique": {midge.Unique{By: []string{"Pages"}}, midge.NotUnique()},
		"a window":   {midge.Unique{By: []string{"Pages"}}, midge.Unique{By: []string{"Pages"}, For: time.Hour}},
	} {
		if len(midgetest.All[sheet](t, client, midgetest.With(test.yes))) != 1 {
			t.Errorf("%s: what it was enqueued with does not match", name)
		}
		if len(midgetest.All[sheet](t, client, midgetest.With(test.no))) != 0 {
			t.Errorf("%s: what it was not enqueued with matches", name)
		}
	}
}

func TestTimesComeBackFromTheStorage(t *testing.T) {
	client := newClient(t)
	when := time.Now().UTC()
	enqueue(t, client, sheet{Pages: 1, When: when})
	midgetest.RequireEnqueued[sheet](t, client, midgetest.Params(sheet{Pages: 1, When: when}))
}

func TestWhatHasEndedIsNotEnqueued(t *testing.T) {
	client := newClient(t)
	task := enqueue(t, client, mail{To: "ann"}, midge.KeepFor(time.Hour))
	_, err := client.Cancel(t.Context(), task.Ref)
	must(t, err)
	midgetest.RequireNone[mail](t, client)
}

func TestFailuresListWhatWasEnqueued(t *testing.T) {
	client := newClient(t)
	none := func(t testing.TB) { midgetest.RequireEnqueued[mail](t, client, midgetest.Params(mail{To: "ann"})) }
	wantFailure(t, "midgetest: want 1 task of midgetest_test.mail with the parameters {To:ann Text:}, found 0; "+
		"nothing was enqueued that has not ended", none)

	enqueue(t, client, sheet{Pages: 3}, midge.At(time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)), midge.Priority(2))
	enqueue(t, client, mail{To: "bob"})
	const listing = "; enqueued and not ended:\n" +
		"  mail default/ID waiting {To:bob Text:}%s\n" +
		"  sheet paper/ID scheduled until 2100-01-02T03:04:05Z priority 2 " +
		"map[Pages:3 When:0001-01-01 00:00:00 +0000 UTC]"
	wantFailure(t, "midgetest: want 1 task of midgetest_test.mail with the parameters {To:ann Text:}, found 0"+
		fmt.Sprintf(listing, ": other parameters"), none)
	wantFailure(t, "midgetest: want 2 tasks of midgetest_test.mail, found 1"+fmt.Sprintf(listing, ""),
		func(t testing.TB) { midgetest.RequireEnqueued[mail](t, client, midgetest.Times(2)) })
	wantFailure(t, "midgetest: want no task of midgetest_test.mail, found 1"+fmt.Sprintf(listing, ""),
		func(t testing.TB) { midgetest.RequireNone[mail](t, client) })
	wantFailure(t, "midgetest: want 1 task of midgetest_test.mail with queue slow, Priority 3 and a job that Where accepts, "+
		"found 0"+fmt.Sprintf(listing, ": queue is default"),
		func(t testing.TB) {
			midgetest.RequireEnqueued[mail](t, client, midgetest.With(midge.To("slow"), midge.Priority(3)),
				midgetest.Where(func(mail) bool { return true }))
		})
}

func TestFailuresAreShort(t *testing.T) {
	client := newClient(t)
	for range 30 {
		enqueue(t, client, mail{Text: strings.Repeat("long ", 1000)})
	}
	text := failure(t, func(t testing.TB) { midgetest.RequireNone[mail](t, client) })
	if len(text) > 10_000 || !strings.HasSuffix(text, "\n  and 10 more") {
		t.Errorf("the failure has %d bytes and ends with %q", len(text), text[len(text)-30:])
	}
}

// letter has the kind of mail and other fields.
type letter struct{ To int }

func (letter) Kind() string { return "mail" }

func TestParametersThatDoNotFitAreTold(t *testing.T) {
	client := newClient(t)
	enqueue(t, client, mail{To: "ann"})
	got := failure(t, func(t testing.TB) { midgetest.RequireEnqueued[letter](t, client) })
	if !strings.Contains(got, "map[Text: To:ann]: its parameters do not fit midgetest_test.letter: midge: decode") {
		t.Errorf("the failure is %s", got)
	}
}

// TestParametersThatDoNotFitMayMatch checks that no test passes because a task of its kind cannot be decoded.
func TestParametersThatDoNotFitMayMatch(t *testing.T) {
	client := newClient(t)
	enqueue(t, client, mail{To: "ann"}, midge.Priority(3), midge.Unique{Key: "ann"})
	enqueue(t, client, sheet{Pages: 3})
	ofAnn := func(l letter) bool { return l.To == 1 }
	for name, matches := range map[string][]midgetest.Match{
		"any":      nil,
		"params":   {midgetest.Params(letter{To: 1})},
		"where":    {midgetest.Where(ofAnn)},
		"priority": {midgetest.With(midge.Priority(3))},
		"unique":   {midgetest.With(midge.Unique{Key: "ann"})},
		"several":  {midgetest.Where(ofAnn), midgetest.With(midge.Priority(3))},
	} {
		for verb, test := range map[string]func(t testing.TB){
			"RequireNone": func(t testing.TB) { midgetest.RequireNone[letter](t, client, matches...) },
			"Times(0)": func(t testing.TB) {
				midgetest.RequireEnqueued[letter](t, client, append(slices.Clip(matches), midgetest.Times(0))...)
			},
		} {
			got := failure(t, test)
			if !strings.Contains(got, ", found 0 and 1 whose parameters do not fit; enqueued and not ended:\n  mail ") {
				t.Errorf("%s, %s: the failure is %q", verb, name, got)
			}
		}
	}
	midgetest.RequireNone[letter](t, client, midgetest.With(midge.Priority(4)))
	midgetest.RequireNone[letter](t, client, midgetest.Where(ofAnn), midgetest.With(midge.To("elsewhere")))
	enqueue(t, client, letter{To: 1})
	got := failure(t, func(t testing.TB) { midgetest.RequireEnqueued[letter](t, client) })
	if !strings.Contains(got, "found 1 and 1 whose parameters do not fit") {
		t.Errorf("of two tasks one of which does not fit: %q", got)
	}
	midgetest.RequireEnqueued[letter](t, client, midgetest.With(midge.Priority(0)))
}

func TestAKindIsFoundByItsNewName(t *testing.T) {
	client := newClient(t)
	enqueue(t, client, mail{To: "ann"})
	midgetest.RequireEnqueued[post](t, client, midgetest.Params(post{To: "ann"}))
}

func TestBadMatchesFail(t *testing.T) {
	client := newClient(t)
	for name, test := range map[string]struct {
		want string
		test func(t testing.TB)
	}{
		"another type": {
			"midgetest: a match of midgetest_test.sheet was given where tasks of midgetest_test.mail are looked for",
			func(t testing.TB) { midgetest.RequireEnqueued[mail](t, client, midgetest.Params(sheet{})) },
		},
		"no function": {
			"midgetest: invalid Where \"nil\": want a function of a job",
			func(t testing.TB) { midgetest.RequireNone[mail](t, client, midgetest.Where[mail](nil)) },
		},
		"times": {
			"midgetest: invalid Times \"-1\": want 0 or more",
			func(t testing.TB) { midgetest.RequireEnqueued[mail](t, client, midgetest.Times(-1)) },
		},
		"an option": {
			"midgetest: with: invalid Priority 10: want -9 to 9",
			func(t testing.TB) { midgetest.All[mail](t, client, midgetest.With(midge.Priority(10))) },
		},
		"a pointer": {
			"midgetest: invalid job type *midgetest_test.mail: want a struct, as it was registered",
			func(t testing.TB) { midgetest.All[*mail](t, client) },
		},
		"no client": {
			"midgetest: invalid client nil: want one made by midge.NewClient",
			func(t testing.TB) { midgetest.RequireNone[mail](t, nil) },
		},
	} {
		t.Run(name, func(t *testing.T) { wantFailure(t, test.want, test.test) })
	}
}

// tenant is a job whose BeforeEnqueue fills in a field, and counts its calls.
type tenant struct{ Name string }

type tenantKey struct{}

var tenants int

func (j *tenant) BeforeEnqueue(ctx context.Context) error {
	tenants++
	name, ok := ctx.Value(tenantKey{}).(string)
	if !ok {
		return errors.New("no tenant")
	}
	j.Name += name
	return nil
}

// The job of a task was prepared when it was enqueued. With does not prepare it again to compute its unique key.
func TestWithUniqueDoesNotPrepareAJobAgain(t *testing.T) {
	k := midgetest.New(t, midgetest.Config{})
	ctx := context.WithValue(t.Context(), tenantKey{}, "acme")
	_, err := k.Client().Enqueue(ctx, tenant{}, midge.Unique{})
	must(t, err)
	tenants = 0
	midgetest.RequireEnqueued[tenant](t, k.Client(), midgetest.With(midge.Unique{}))
	if tenants != 0 {
		t.Errorf("BeforeEnqueue was called %d times", tenants)
	}
}
