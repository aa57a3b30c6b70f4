package storagetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// recorder is a TB that a rule may fail without failing the test which runs it.
type recorder struct {
	testing.TB

	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex // guards the fields below
	failed   bool
	log      []string
	cleanups []func()
}

// broken tests a rule on a storage in a synctest bubble, and returns whether the rule failed and its log.
func broken(t *testing.T, ru rule, open Opener) (failed bool, log string) {
	t.Helper()
	return recorded(t, func(t testing.TB) { ru.check(t, open, true) })
}

// recorded calls test in a synctest bubble with a TB that it may fail, and returns whether it failed and its
// log.
func recorded(t *testing.T, test func(t testing.TB)) (failed bool, log string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		r.ctx, r.cancel = context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer r.clean()
			defer r.recover()
			test(r)
		}()
		<-done
		failed, log = r.failed, strings.Join(r.log, "\n")
	})
	return failed, log
}

// recover makes a panic of the rule a failure.
func (r *recorder) recover() {
	if p := recover(); p != nil {
		r.Errorf("panic: %v", p)
	}
}

// clean ends the context, then calls the cleanups as package testing does, the last one first.
func (r *recorder) clean() {
	r.cancel()
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Log(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, fmt.Sprint(args...))
}

func (r *recorder) Logf(format string, args ...any) { r.Log(fmt.Sprintf(format, args...)) }

func (r *recorder) Error(args ...any) {
	r.Log(args...)
	r.Fail()
}

func (r *recorder) Errorf(format string, args ...any) { r.Error(fmt.Sprintf(format, args...)) }

func (r *recorder) Fatal(args ...any) {
	r.Log(args...)
	r.FailNow()
}

func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

func (r *recorder) Helper() {}
