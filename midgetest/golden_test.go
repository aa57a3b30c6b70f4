package midgetest_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/midgetest"
)

// order is the original job; the other types are changed versions of it.
type (
	line  struct{ SKU string }
	order struct {
		Number int64
		Email  string
		Lines  []line
		Prices map[string]float64
		Placed time.Time
		Host   netip.Addr
		Note   *string
		Scan   []byte
		Any    any
	}
	// orderWider has other types that can hold all values of the old ones, and one more field.
	orderWider struct {
		Number  float64
		Email   string
		Lines   []*line
		Prices  map[string]any
		Placed  time.Time
		Host    netip.Addr
		Note    string
		Scan    []byte
		Any     any
		Express bool
	}
	orderNarrower struct {
		Number int32
		Email  string
		Lines  []line
	}
	orderRenamed struct {
		Number int64
		Mail   string
		Lines  []struct{ Article string }
		Prices map[string]float64
		Placed time.Time
		Host   netip.Addr
		Note   *string
		Scan   []byte
		Any    any
	}
)

// orderWas reads its renamed fields, and orderKept keeps their stored names as well.
type (
	rowWas struct {
		Article string `midge:"was=SKU"`
	}
	orderWas struct {
		Number int64
		Mail   string   `midge:"was=Email"`
		Rows   []rowWas `midge:"was=Lines"`
		Prices map[string]float64
		Placed time.Time
		Host   netip.Addr
		Note   *string
		Scan   []byte
		Any    any
	}
	orderKept struct {
		Number int64
		Mail   string `json:"Email" msgpack:"Email"`
		Rows   []line `json:"Lines" msgpack:"Lines"`
		Prices map[string]float64
		Placed time.Time
		Host   netip.Addr
		Note   *string
		Scan   []byte
		Any    any
	}
)

func (orderWas) Kind() string            { return "order" }
func (orderWas) Options() midge.Options  { return midge.Options{Encoding: encoding} }
func (orderKept) Kind() string           { return "order" }
func (orderKept) Options() midge.Options { return midge.Options{Encoding: encoding} }
func (order) Kind() string               { return "order" }
func (orderWider) Kind() string          { return "order" }
func (orderNarrower) Kind() string       { return "order" }
func (orderRenamed) Kind() string        { return "order" }

func (j order) Options() midge.Options { return midge.Options{Encoding: encoding} }

// encoding is the encoding of the orders; a test sets it.
var encoding midge.Encoding

// registers registers jobs that do nothing.
func registers[J any](r *midge.Runner) error {
	return errors.Join(
		midge.Handle(r, func(context.Context, J) error { return nil }),
		midge.Handle(r, func(context.Context, mail) error { return nil }))
}

// write writes the file of orders and returns its path.
func write(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "testdata", "jobs.json")
	t.Setenv("MIDGETEST_UPDATE", "1")
	midgetest.Golden(t, path, registers[order])
	t.Setenv("MIDGETEST_UPDATE", "")
	return path
}

func TestGoldenTellsWhatADeployCannotRead(t *testing.T) {
	for _, encoding = range []midge.Encoding{midge.MessagePack, midge.JSON} {
		path := write(t)
		const end = "\nOnce no such task waits any more, run the test with MIDGETEST_UPDATE=1, which rewrites the file."
		begin := "midgetest: this deploy cannot read what waits, by " + path + ":\n  "
		midgetest.Golden(t, path, registers[order])
		wantFailure(t, "midgetest: "+path+" does not have what is new:\n  order: Express\n"+
			"Run the test with MIDGETEST_UPDATE=1, which rewrites the file.",
			func(t testing.TB) { midgetest.Golden(t, path, registers[orderWider]) })
		keeps := func(name string) string {
			return fmt.Sprintf("is read by nothing: the field was removed or renamed. The tag `%s:\"%s\"` keeps its stored name, "+
				"for the program before this one too; `midge:\"was=%s\"` reads it in this one alone", encoding, name, name)
		}
		wantFailure(t, begin+"order: Email (text) "+keeps("Email")+"\n  order: Lines[].SKU (text) "+keeps("SKU")+end,
			func(t testing.TB) { midgetest.Golden(t, path, registers[orderRenamed]) })
		wantFailure(t, begin+"order: no job of this kind is registered any more"+end,
			func(t testing.TB) { midgetest.Golden(t, path, registers[step]) })
		narrow := failure(t, func(t testing.TB) { midgetest.Golden(t, path, registers[orderNarrower]) })
		if !strings.HasPrefix(narrow, begin+"order: ") || !strings.Contains(narrow, "Number") {
			t.Errorf("%s: the failure of a narrower field is\n%s", encoding, narrow)
		}
	}
}

// priced has a map with keys that are no texts, which MessagePack stores as they are.
type (
	priced struct {
		By   map[int8]map[bool]line
		Left int64
	}
	pricedRenamed struct {
		By   map[int8]map[bool]struct{ Article string }
		Left int64
	}
	pricedUnsigned struct {
		By   map[int8]map[bool]line
		Left uint64
	}
)

func (priced) Kind() string                   { return "priced" }
func (pricedRenamed) Kind() string            { return "priced" }
func (pricedUnsigned) Kind() string           { return "priced" }
func (priced) Options() midge.Options         { return midge.Options{Encoding: encoding} }
func (pricedRenamed) Options() midge.Options  { return midge.Options{Encoding: encoding} }
func (pricedUnsigned) Options() midge.Options { return midge.Options{Encoding: encoding} }

// A renamed field within a map whose keys are no texts is lost too, and an unsigned type cannot hold negative numbers.
func TestGoldenLooksIntoMapsAndAtSigns(t *testing.T) {
	encoding = midge.MessagePack
	path := filepath.Join(t.TempDir(), "jobs.json")
	t.Setenv("MIDGETEST_UPDATE", "1")
	midgetest.Golden(t, path, registers[priced])
	t.Setenv("MIDGETEST_UPDATE", "")
	midgetest.Golden(t, path, registers[priced])
	got := failure(t, func(t testing.TB) { midgetest.Golden(t, path, registers[pricedRenamed]) })
	if want := "\n  priced: By.127.true.SKU (text) is read by nothing: "; !strings.Contains(got, want) {
		t.Errorf("the failure is %s\nwant %q in it", got, want)
	}
	got = failure(t, func(t testing.TB) { midgetest.Golden(t, path, registers[pricedUnsigned]) })
	if want := `got integer out of range for field "Left", want uint64`; !strings.Contains(got, want) {
		t.Errorf("the failure is %s\nwant %q in it", got, want)
	}
}

// A rename that this program can read may still empty the field in the program before it.
func TestGoldenWarnsOfARenameThatTheProgramBeforeCannotRead(t *testing.T) {
	for _, encoding = range []midge.Encoding{midge.MessagePack, midge.JSON} {
		path := write(t)
		warns := func(name string) string {
			return "\n  warning: order: " + name + " has another stored name now. The program before this one runs new tasks with this " +
				"field empty. The tag `" + string(encoding) + ":\"" + name + "\"` keeps the name until it is gone; see docs/deploying.md"
		}
		renamed := "midgetest: " + path + " does not have what is new:\n  order: Mail\n  order: Rows\n  order: Rows[].Article\n" +
			"Run the test with MIDGETEST_UPDATE=1, which rewrites the file." + warns("Email") + warns("Lines")
		wantFailure(t, renamed, func(t testing.TB) { midgetest.Golden(t, path, registers[orderWas]) })
		midgetest.Golden(t, path, registers[orderKept])
		t.Setenv("MIDGETEST_UPDATE", "1")
		if got := logged(t, func(t testing.TB) { midgetest.Golden(t, path, registers[orderWas]) }); got != "midgetest: wrote "+path+warns("Email")+warns("Lines") {
			t.Errorf("%s: the log is %s", encoding, got)
		}
		if got := logged(t, func(t testing.TB) { midgetest.Golden(t, path, registers[orderWas]) }); got != "midgetest: wrote "+path {
			t.Errorf("%s: the second log is %s", encoding, got)
		}
		t.Setenv("MIDGETEST_UPDATE", "")
		midgetest.Golden(t, path, registers[orderWas])
	}
}

// post is mail with another name.
type post struct{ To, Text string }

func (post) Aliases() []string { return []string{"mail"} }

func TestGoldenAcceptsAKindWhoseNewNameHasTheOldOneAsAnAlias(t *testing.T) {
	path := write(t)
	renamed := func(r *midge.Runner) error {
		return errors.Join(
			midge.Handle(r, func(context.Context, order) error { return nil }),
			midge.Handle(r, func(context.Context, post) error { return nil }))
	}
	wantFailure(t, "midgetest: "+path+" does not have what is new:\n  post\n"+
		"Run the test with MIDGETEST_UPDATE=1, which rewrites the file.",
		func(t testing.TB) { midgetest.Golden(t, path, renamed) })
	t.Setenv("MIDGETEST_UPDATE", "1")
	midgetest.Golden(t, path, renamed)
	t.Setenv("MIDGETEST_UPDATE", "")
	midgetest.Golden(t, path, renamed)
	forgotten := func(r *midge.Runner) error {
		return errors.Join(midge.Handle(r, func(context.Context, order) error { return nil }))
	}
	if got := failure(t, func(t testing.TB) { midgetest.Golden(t, path, forgotten) }); !strings.Contains(got,
		"\n  mail: no job of this kind is registered any more\n  post: no job of this kind is registered any more\n") {
		t.Errorf("the failure is %s", got)
	}
}

// A step that is done under another name, or whose result has another shape, does not suit the tasks that have
// finished it.
func TestGoldenComparesSteps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.json")
	type account struct{ ID int }
	type renamed struct{ Number int }
	golden := func(t testing.TB, fn func(ctx context.Context, s step) error) {
		register := func(r *midge.Runner) error { return midge.Handle(r, fn) }
		worked := midgetest.New(t, midgetest.Config{Register: register}).Work(step{}, midge.KeepFor(time.Hour))
		midgetest.Golden(t, path, register, worked)
	}
	first := func(ctx context.Context, _ step) error {
		_, err := midge.Step(ctx, "account", func(context.Context) (account, error) { return account{7}, nil })
		return errors.Join(err, midge.Sleep(ctx, "pause", 0))
	}
	t.Setenv("MIDGETEST_UPDATE", "1")
	golden(t, first)
	t.Setenv("MIDGETEST_UPDATE", "")
	golden(t, first)
	got := failure(t, func(t testing.TB) {
		golden(t, func(ctx context.Context, _ step) error {
			_, err := midge.Step(ctx, "account", func(context.Context) (renamed, error) { return renamed{7}, nil })
			return errors.Join(err, midge.Sleep(ctx, "wait", 0))
		})
	})
	for _, want := range []string{
		`step: the result of step "account" has nothing for "ID", and had number`, `step: no step "pause" is done any more`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the failure is %s\nwant %q in it", got, want)
		}
	}
	wantFailure(t, "midgetest: "+path+" does not have what is new:\n  step: step \"mail\"\n"+
		"Run the test with MIDGETEST_UPDATE=1, which rewrites the file.",
		func(t testing.TB) {
			golden(t, func(ctx context.Context, s step) error {
				_, err := midge.Step(ctx, "mail", func(context.Context) (string, error) { return "sent", nil })
				return errors.Join(first(ctx, s), err)
			})
		})
}

func TestGoldenTellsWhatTheFileLacks(t *testing.T) {
	path := write(t)
	wantFailure(t, "midgetest: "+path+" does not have what is new:\n  step\n"+
		"Run the test with MIDGETEST_UPDATE=1, which rewrites the file.",
		func(t testing.TB) {
			midgetest.Golden(t, path, func(r *midge.Runner) error {
				return errors.Join(registers[order](r), midge.Handle(r, func(context.Context, step) error { return nil }))
			})
		})
	none := filepath.Join(t.TempDir(), "none.json")
	wantFailure(t, "midgetest: there is no "+none+": run the test once with MIDGETEST_UPDATE=1, which writes it, and commit it",
		func(t testing.TB) { midgetest.Golden(t, none, registers[order]) })
	must(t, os.WriteFile(none, []byte("{"), 0o600))
	wantFailure(t, "midgetest: read "+none+", which MIDGETEST_UPDATE=1 writes: unexpected end of JSON input",
		func(t testing.TB) { midgetest.Golden(t, none, registers[order]) })
	wantFailure(t, "midgetest: invalid register nil: want the function that registers the jobs",
		func(t testing.TB) { midgetest.Golden(t, path, nil) })
	wantFailure(t, "midgetest: register: not today",
		func(t testing.TB) {
			midgetest.Golden(t, path, func(*midge.Runner) error { return errors.New("not today") })
		})
}

func TestGoldenWritesTheSameEachTime(t *testing.T) {
	first, err := os.ReadFile(write(t))
	must(t, err)
	second, err := os.ReadFile(write(t))
	must(t, err)
	if string(first) != string(second) {
		t.Errorf("a file is\n%s\nand another\n%s", first, second)
	}
	if !strings.Contains(string(first), `"Lines[].SKU": "text"`) {
		t.Errorf("the file is\n%s\nwant its fields in it", first)
	}
}

// logged returns the last line that a test logs.
func logged(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	l := &logs{TB: t}
	test(l)
	return l.line
}

type logs struct {
	testing.TB

	line string
}

func (l *logs) Logf(format string, args ...any) { l.line = fmt.Sprintf(format, args...) }
