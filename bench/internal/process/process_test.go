package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// busyTime is the processor time that a busy child uses.
const busyTime = 200 * time.Millisecond

// roles are the roles of this test program's children.
var roles = map[string]Role{
	"double": func(_ context.Context, spec []byte, _ func()) (any, error) {
		var n int
		err := json.Unmarshal(spec, &n)
		return 2 * n, err
	},
	"fail": func(context.Context, []byte, func()) (any, error) { return nil, errors.New("out of luck") },
	"busy": func(ctx context.Context, _ []byte, ready func()) (any, error) {
		for {
			used, err := CPU(os.Getpid())
			if err != nil {
				return nil, err
			}
			if used > busyTime {
				break
			}
		}
		ready()
		<-ctx.Done()
		return "", nil
	},
	"wait": func(ctx context.Context, _ []byte, ready func()) (any, error) {
		ready()
		<-ctx.Done()
		return "told to end", nil
	},
}

func TestMain(m *testing.M) {
	served, err := Serve(context.Background(), os.Args, roles)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case served:
		return
	}
	os.Exit(m.Run())
}

func TestChildReports(t *testing.T) {
	child, err := Start(t.Context(), "double", 21)
	if err != nil {
		t.Fatal(err)
	}
	var got int
	if err := child.Wait(&got); got != 42 || err != nil {
		t.Errorf("the report is %d, %v, want 42", got, err)
	}
}

func TestChildTellsItsError(t *testing.T) {
	child, err := Start(t.Context(), "fail", nil)
	if err != nil {
		t.Fatal(err)
	}
	var got int
	if err := child.Wait(&got); err == nil || !strings.Contains(err.Error(), "fail: out of luck") {
		t.Errorf("the error is %v, want the role's", err)
	}
}

func TestChildEndsWhenTold(t *testing.T) {
	child, err := Start(t.Context(), "wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Ready(); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := child.Finish(&got); got != "told to end" || err != nil {
		t.Errorf("the report is %q, %v, want that of the end", got, err)
	}
}

func TestUnknownRole(t *testing.T) {
	child, err := Start(t.Context(), "nobody", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Ready(); err == nil {
		t.Error("a role that is not there was ready")
	}
}

func TestOrdinaryArgumentsAreNoRole(t *testing.T) {
	for _, args := range [][]string{{"bench"}, {"bench", "-quick"}, {"bench", "-metrics", "mixed"}} {
		if served, err := Serve(t.Context(), args, roles); served || err != nil {
			t.Errorf("%q was served: %t, %v", args, served, err)
		}
	}
}

func TestPeakIsRead(t *testing.T) {
	got, err := peakOf("Name:\tbench\nVmPeak:\t  900 kB\nVmHWM:\t    12 kB\n")
	if got != 12<<10 || err != nil {
		t.Errorf("the peak is %d, %v, want %d", got, err, 12<<10)
	}
	if _, err := peakOf("Name:\tbench\n"); err == nil {
		t.Error("the peak of a status without one is no error")
	}
}

// The processor clock of this process advances while it works. On systems other than
// Linux, CPU returns an error, not 0.
func TestCPUMovesOn(t *testing.T) {
	before, err := CPU(os.Getpid())
	if runtime.GOOS != "linux" {
		if err == nil {
			t.Error("CPU gave no error")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for after := before; after <= before; {
		if after, err = CPU(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := CPU(1 << 22); err == nil {
		t.Error("the clock of a process that is not there can be read")
	}
}
