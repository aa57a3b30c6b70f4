package process

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func TestStatIsRead(t *testing.T) {
	const line = "4711 (a (b) c) S 42 4711 4711 0 -1 4194560 9 9 0 0 7 8 150 50 20 0 1 0 99 9 9\n"
	got, err := statOf(line)
	if want := (stat{pid: 4711, parent: 42, ended: 2 * time.Second}); got != want || err != nil {
		t.Errorf("the stat is %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"", "1 (a) S 0", "x (a) S 42 4711 4711 0 -1 4194560 9 9 0 0 7 8 150 50 20"} {
		if _, err := statOf(bad); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
}

// A child's work counts while it runs and when it has ended.
func TestTreeCountsChildren(t *testing.T) {
	if runtime.GOOS != "linux" {
		if _, err := TreeCPU(os.Getpid()); err == nil {
			t.Error("TreeCPU gave no error")
		}
		return
	}
	child, err := Start(t.Context(), "busy", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Ready(); err != nil {
		t.Fatal(err)
	}
	beyond := func() time.Duration {
		own, err := CPU(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		tree, err := TreeCPU(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return tree - own
	}
	if got := beyond(); got < busyTime/2 {
		t.Errorf("the running child took %v, want %v or more", got, busyTime/2)
	}
	var nothing string
	if err := child.Finish(&nothing); err != nil {
		t.Fatal(err)
	}
	if got := beyond(); got < busyTime/2 {
		t.Errorf("the child that ended took %v, want %v or more", got, busyTime/2)
	}
}
