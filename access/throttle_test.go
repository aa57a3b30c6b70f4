package access

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// throttled fails the test unless err is a *ThrottledError, and returns how long to wait.
func throttled(t *testing.T, what string, err error) time.Duration {
	t.Helper()
	var e *ThrottledError
	if !errors.As(err, &e) {
		t.Fatalf("%s: got %v, want a ThrottledError", what, err)
	}
	return e.After
}

func TestFailedLoginsAreThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := users(t, User{"ann", Viewer}, User{"bo", Viewer})
		login := func(remote, name, password string) error {
			_, err := u.Login(from(t, remote), name, password)
			return err
		}
		for range 3 * failuresAtOnce { // a login that succeeds does not count
			if err := login(home, "ann", "password of ann"); err != nil {
				t.Fatal(err)
			}
		}
		for range failuresAtOnce {
			if err := login(home, "ann", "wrong"); !errors.Is(err, ErrDenied) {
				t.Fatalf("got %v, want ErrDenied", err)
			}
		}
		throttled(t, "the address", login(home, "bo", "password of bo"))
		throttled(t, "the name", login("127.0.0.2:1", "ann", "password of ann"))
		if err := login("127.0.0.2:1", "bo", "password of bo"); err != nil {
			t.Errorf("another address and name: %v", err)
		}
		time.Sleep(throttled(t, "both", login(home, "ann", "password of ann")))
		if err := login(home, "ann", "password of ann"); err != nil {
			t.Errorf("after the wait: %v", err)
		}
	})
}

// TestNamesThatChangeAreThrottled checks that an address fails 20 times a minute, whatever names it makes up.
func TestNamesThatChangeAreThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, looked := users(t, User{"ann", Viewer}), 0
		for begun, i := time.Now(), 0; time.Since(begun) < 10*time.Minute; i++ {
			if _, err := u.Login(from(t, home), fmt.Sprint("name", i), "guess"); errors.Is(err, ErrDenied) {
				looked++
			}
			time.Sleep(100 * time.Millisecond)
		}
		if looked > 11*failuresAtOnce {
			t.Errorf("%d names were looked at in 10 minutes, want at most 20 a minute", looked)
		}
	})
}

// TestABrowserThatIsKnownIsNotLockedOut checks that failures from elsewhere do not concern a browser in which
// the user has logged in before, and that such a browser does not guess at will either.
func TestABrowserThatIsKnownIsNotLockedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann, bo := User{"ann", Viewer}, User{"bo", Viewer}
		u := users(t, ann, bo)
		for i := range 2 * failuresAtOnce {
			_, _ = u.Login(from(t, home), "ann", "wrong")
			_, _ = u.Login(from(t, fmt.Sprintf("10.0.0.%d:1", i)), "ann", "wrong")
		}
		known, others := carrying(t, u, ann), carrying(t, u, bo)
		known.RemoteAddr, others.RemoteAddr = home, home
		if got, err := u.Login(known, "ann", "password of ann"); err != nil || got != ann {
			t.Errorf("a browser that is known: %v, %v", got, err)
		}
		_, err := u.Login(others, "ann", "password of ann")
		throttled(t, "the browser of somebody else", err)
		for range failuresAtOnce {
			if _, err := u.Login(known, "ann", "wrong"); !errors.Is(err, ErrDenied) {
				t.Fatalf("got %v, want ErrDenied", err)
			}
		}
		_, err = u.Login(known, "ann", "password of ann")
		throttled(t, "the browser that is known, after its own failures", err)
	})
}

// TestNamesThatAreMadeUpDelayNoLogin checks that a wrong name takes as long as a password, but no turn and so
// no processor: 1,000 of them of 100 clients do not delay the right password.
func TestNamesThatAreMadeUpDelayNoLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := users(t, User{"ann", Viewer})
		u.pauses.once.Do(func() { u.pauses.add(200 * time.Millisecond) })
		for range hashesAtOnce { // a request that wants a turn now waits for ever
			u.hashing <- struct{}{}
		}
		begun, denied := time.Now(), make(chan error)
		for i := range 100 {
			go func() {
				for n := range 10 {
					_, err := u.Login(from(t, fmt.Sprintf("10.0.0.%d:1", i)), fmt.Sprint("name ", i, n), "guess")
					denied <- err
				}
			}()
		}
		for range 1000 {
			if err := <-denied; !errors.Is(err, ErrDenied) {
				t.Errorf("got %v, want ErrDenied", err)
			}
		}
		if took := time.Since(begun); took != 10*200*time.Millisecond {
			t.Errorf("ten names after each other took %v, want ten times as long as a password", took)
		}
		<-u.hashing
		begun = time.Now()
		if _, err := u.Login(from(t, home), "ann", "password of ann"); err != nil || time.Since(begun) > 0 {
			t.Errorf("the right password: %v after %v", err, time.Since(begun))
		}
	})
}

func TestAThrottleRemembersSoManyKeys(t *testing.T) {
	th := newThrottle()
	for i := range 3 * maxKeys {
		if err := th.charge(fmt.Sprint("address ", i), fmt.Sprint("name ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(th.all); n > maxKeys {
		t.Errorf("%d keys, want at most %d", n, maxKeys)
	}
}
