package cli

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
)

// TestACertificateIsReplacedWhileItServes replaces the files of the certificate, and then breaks them. It is not
// parallel: a signal reaches all servers of the process.
func TestACertificateIsReplacedWhileItServes(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // a process cannot send SIGHUP there
	}
	r := newRig(t)
	cert, key, pool := certificate(t)
	s := r.serve("--tls-cert " + cert + " --tls-key " + key)
	s.pool = pool
	v := s.visitor() // with the first certificate, on a connection that stays
	v.wants(http.StatusOK, "midge", "/", nil)
	newCert, newKey, newPool := certificate(t)
	copied := func(from, to string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	hangUp := func() {
		t.Helper()
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Signal(syscall.SIGHUP)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	copied(newCert, cert)
	copied(newKey, key)
	hangUp()
	serves := func() bool {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.site, "https://"), &tls.Config{RootCAs: newPool, MinVersion: tls.VersionTLS12})
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	testserver.Await(t, "new connections get the new certificate", serves)
	v.wants(http.StatusOK, "midge", "/", nil)
	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	hangUp()
	testserver.Await(t, "the refusal is reported", func() bool {
		return strings.Contains(s.said.String(), "warning: the certificate stays as it is")
	})
	if !serves() {
		t.Error("the certificate is gone after a bad file")
	}
}

// TestBrowsersAreBoundToTLSForTheNamesOfOtherMachines checks that the header is never sent for the names of the
// browser's own machine.
func TestBrowsersAreBoundToTLSForTheNamesOfOtherMachines(t *testing.T) {
	h := strict(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]string{
		"jobs.example.org": "max-age=31536000", "jobs.example.org:8443": "max-age=31536000",
		"localhost:8443": "", "LocalHost": "", "midge.localhost": "", "127.0.0.1:8443": "", "127.3.2.1": "", "[::1]:8443": "",
		"[::1]": "", "::1": "", "[::ffff:127.0.0.1]:1": "",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Strict-Transport-Security"); got != want {
			t.Errorf("for %s: %q, want %q", host, got, want)
		}
	}
}
