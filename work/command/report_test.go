package command

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
)

// TestALongLineHidesNoneBehindIt has a program that has ended after a line that is longer than all bytes that may come
// late, and another line.
func TestALongLineHidesNoneBehindIt(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	r := newReports(&attempt{worker: &worker{Config: Config{MaxLine: 2 * lateBytes}}}, from)
	r.after = true
	go func() {
		_, _ = to.WriteString(`{"snooze_ms":1` + strings.Repeat(" ", lateBytes) + "}\n" + `{"snooze_ms":2}`)
		_ = to.Close()
	}()
	if err := r.lines(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := midge.Snooze(2 * time.Millisecond); r.asked.Error() != want.Error() {
		t.Errorf("the program has asked for: %v; want %v", r.asked, want)
	}
}
