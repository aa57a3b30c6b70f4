package access_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/storage"
)

// TestFormsOfValuesAreConcealed prints hidden values as jobs print them in errors.
func TestFormsOfValuesAreConcealed(t *testing.T) {
	r := redaction(t, "params.key", "params.list.*")
	const mail, path, text = "ann+x@example.org", "files/Ann Ä/7?of=b", "Zoë \"Z\" <z&y>\n"
	born := time.Date(1980, 5, 17, 23, 30, 0, 0, time.FixedZone("CEST", 7200))
	seen := time.Date(2026, 11, 30, 8, 5, 9, 123456789, time.UTC)
	escaped := func(s string) []string {
		at := &url.URL{Scheme: "https", Host: "example.com", Path: "/" + s}
		user := &url.URL{Scheme: "https", Host: "example.com", User: url.UserPassword(s, "x")}
		return []string{
			s, fmt.Sprintf("%q", s), fmt.Sprintf("%+q", s), fmt.Sprintf("%#v", s), url.QueryEscape(s), url.PathEscape(s), at.String(),
			user.String(), url.Values{"key": {s}}.Encode(), storage.PrintableText(s, 100),
		}
	}
	moments := func(at time.Time) []string {
		return []string{
			at.String(), at.UTC().String(), time.Unix(at.Unix(), 0).String(), at.Format(time.RFC3339), at.Format(time.DateTime), at.Format(time.DateOnly),
			at.UTC().Format(time.DateOnly), at.Format(time.RFC1123), at.UTC().Format(time.RFC1123), at.Format(time.ANSIC),
			fmt.Sprint(at.Unix()), fmt.Sprint(at.UnixMilli()),
		}
	}
	for _, c := range []struct {
		value any
		shows []string // parts of the value that no text may show
		texts []string
	}{
		{mail, []string{"ann"}, escaped(mail)},
		{path, []string{"files", "Ann"}, escaped(path)},
		{text, []string{"Zo"}, escaped(text)},
		{"$own", []string{"own"}, []string{"$own"}},
		{1234567.5, []string{"1.2", "1234"}, []string{fmt.Sprint(1234567.5), "1234567.5", "1234567.50", fmt.Sprintf("%e", 1234567.5)}},
		{98765.0, []string{"987"}, []string{fmt.Sprint(98765.0), fmt.Sprintf("%.2f", 98765.0), "98765"}},
		{12345678, []string{"123", "1.2"}, []string{"12345678", fmt.Sprint(float64(12345678)), "12345678.00"}},
		{-73.98765, []string{"73"}, []string{"-73.98765", "-73.99", fmt.Sprint(float32(-73.98765))}},
		{float64(float32(1234.56)), []string{"1234"}, []string{fmt.Sprint(float32(1234.56)), "1234.56"}},
		{1e21, []string{"1e", "1000"}, []string{fmt.Sprint(1e21), "1000000000000000000000"}},
		{5e-7, []string{"5"}, []string{fmt.Sprint(5e-7), "0.0000005"}},
		{json.RawMessage("98765.0"), []string{"987"}, []string{"98765", "98765.0", "98765.00"}},
		{json.RawMessage("1.2345675e6"), []string{"123", "1.2"}, []string{"1234567.5", "1.2345675e+06"}},
		{born, []string{"1980", "May", "-05-", "30:00", "3274"}, moments(born)},
		{seen, []string{"2026", "Nov", "-11-", "05:09", "1764"}, moments(seen)},
	} {
		params, err := json.Marshal(map[string]any{"key": c.value, "list": []any{c.value}})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.texts {
			kept, _ := storage.AttemptTexts("key <"+text+"> is bad", "")
			for _, part := range []string{kept, "a list: " + kept} {
				got := r.Conceal(ofParams(params), nil, part)[0]
				for _, of := range c.shows {
					if strings.Contains(got, of) {
						t.Errorf("%v: %q is shown as %q, which has %q", c.value, part, got, of)
					}
				}
			}
		}
	}
	// Numbers and moments that are not hidden stay.
	params := []byte(`{"key":1234567.5,"amount":88.25,"at":"2026-11-30T08:05:09Z"}`)
	const stays = "amount 88.25 of 2026-11-30, 1234567, 12345.67"
	if got := r.Conceal(map[string][]byte{access.PartParams: params}, nil, stays)[0]; got != stays {
		t.Errorf("%q is shown as %q", stays, got)
	}
}
