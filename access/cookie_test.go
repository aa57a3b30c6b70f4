package access

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
)

// TestCookiesAreNamedByTheirScope checks the prefixes by which browsers keep other hosts and pages without TLS
// from setting a cookie.
func TestCookiesAreNamedByTheirScope(t *testing.T) {
	ann := User{"ann", Operator}
	u := users(t, ann)
	for _, c := range []struct {
		path   string
		secure bool
		prefix string
	}{{"/", true, "__Host-midge_"}, {"/midge/", true, "__Secure-midge_"}, {"/", false, "midge_"}, {"/midge/", false, "midge_"}} {
		all, err := u.Cookies(ann, c.path, c.secure)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range append(all, u.EndCookie(c.path, c.secure)) {
			if !strings.HasPrefix(got.Name, c.prefix) || got.Path != c.path || got.Secure != c.secure || got.Domain != "" {
				t.Errorf("%s, secure %t: %v", c.path, c.secure, got)
			}
		}
		r := &http.Request{Header: make(http.Header)}
		r.AddCookie(all[0])
		if _, ok := u.Who(r); !ok {
			t.Errorf("the cookie %s is not read", all[0].Name)
		}
		r.TLS = &tls.ConnectionState{}
		if _, ok := u.Who(r); ok != c.secure {
			t.Errorf("over TLS the cookie %s is taken: %t", all[0].Name, ok)
		}
	}
}

// TestABadCookieHidesNoGoodOne checks a request with further cookies of the same names, as another host of the
// domain or a page below another path may set them.
func TestABadCookieHidesNoGoodOne(t *testing.T) {
	ann := User{"ann", Operator}
	u := users(t, ann)
	good := carrying(t, u, ann)
	bad := []string{"", "x", "YW5u.9999999999.AA", strings.Repeat(".", 5000)}
	r := &http.Request{Header: make(http.Header)}
	for _, value := range bad {
		for _, name := range []string{SessionCookie, DeviceCookie, hostPrefix + SessionCookie, hostPrefix + DeviceCookie} {
			r.Header.Add("Cookie", name+"="+value)
		}
	}
	if _, ok := u.Who(r); ok {
		t.Error("bad cookies admit")
	}
	r.Header.Add("Cookie", good.Header.Get("Cookie"))
	if got, ok := u.Who(r); !ok || got != ann {
		t.Errorf("behind bad cookies: %v, %t", got, ok)
	}
	all, err := u.file.get()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := all.device(r, "ann"); !ok {
		t.Error("behind bad cookies the browser is not known")
	}
}
