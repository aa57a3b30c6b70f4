package access_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// shows returns a part of the value that is also in a text: 3 bytes of a short value, or 6.
func shows(text, value string) string {
	size := 3
	if len(value) > 20 {
		size = 6
	}
	for at := range len(value) - size + 1 {
		if part := value[at : at+size]; strings.Contains(text, part) {
			return part
		}
	}
	return ""
}

// TestPartsOfValuesAreConcealedWhereATextWasCut checks each place at which midge or a storage cuts a text.
func TestPartsOfValuesAreConcealedWhereATextWasCut(t *testing.T) {
	r := redaction(t, "params.key")
	random := func(size int) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			b.WriteString(hex.EncodeToString([]byte{byte(i * 37), byte(i >> 3), byte(i * i)}))
		}
		return b.String()[:size]
	}
	pem := "BEGIN\n" + strings.ReplaceAll(random(1600), "00", "\n") + "\nÄEND"
	dots := func(size int) string { return strings.Repeat("z", size) }
	attempt := func(text, stack string) []string {
		kept, full := storage.AttemptTexts(text, stack)
		return []string{kept, full}
	}
	for what, c := range map[string]struct {
		key   string
		texts []string
	}{
		"a long value":            {pem, attempt("bad key: "+pem, "")},
		"a quoted long value":     {pem, attempt(fmt.Sprintf("bad key: %q", pem), "")},
		"a short value":           {"4111222", attempt(dots(storage.MaxAttemptError-4)+"4111222 is bad", "")},
		"a reason":                {pem, []string{storage.CleanText("bad key: "+pem, storage.MaxReason)}},
		"an error of a stack":     {pem, attempt(dots(storage.MaxText-1000)+pem, "main.go:1")},
		"a stack":                 {pem, attempt("bad", dots(storage.MaxText-1000)+pem)},
		"an error and a stack":    {pem, attempt(dots(storage.MaxText-1000)+pem, dots(storage.MaxText-1000)+pem)},
		"an ellipsis":             {pem, []string{storage.PrintableText("bad key: "+pem, 300) + ", again"}},
		"many ellipses":           {pem, []string{strings.Repeat("Loading… ", 40) + storage.PrintableText("bad key: "+pem, 300)}},
		"an invalid value":        {pem, []string{storage.Invalid("key", pem, "a key").Error()}},
		"the end of an output":    {pem, attempt("exit status 1: (the beginning is cut off)\n"+pem[300:]+" is bad", "")},
		"the middle of an output": {pem, attempt("exit status 1: (the beginning is cut off)\n"+pem[9:], "")},
		"an invalid byte":         {pem, attempt(strings.Repeat("\xff", 20)+"key: "+pem, "")},
		"a value of repeats":      {"abcabcabcx", attempt(dots(storage.MaxAttemptError-8)+"abcabcabcx", "")},
		"an answer":               {"a \"b\"\n<c>" + pem, []string{storage.PrintableText("got a \"b\"\n<c>"+pem, 300)}},
		"a whole answer":          {"a \"b\"\n<c>", []string{storage.PrintableText("got a \"b\"\n<c>", 300)}},
	} {
		params, err := json.Marshal(map[string]string{"key": c.key})
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range r.Conceal(ofParams(params), nil, c.texts...) {
			quoted, _ := json.Marshal(c.key) //nolint:errchkjson // cannot fail: a text alone
			if part := shows(got, c.key) + shows(got, string(quoted)); part != "" && got != "" {
				t.Errorf("%s: text %d shows %.40q", what, i, part)
			}
			if before, _, _ := strings.Cut(c.texts[i], "key"); !strings.HasPrefix(got, before[:min(3, len(before))]) {
				t.Errorf("%s: text %d is %.40q, want its other words", what, i, got)
			}
		}
	}
	// A text that only resembles a part of a value stays.
	for _, text := range []string{"no token BEG", "BEGIN was expected, and " + strings.Repeat("z", 900), "END of file"} {
		params, _ := json.Marshal(map[string]string{"key": pem}) //nolint:errchkjson // cannot fail: texts alone
		if got := r.Conceal(ofParams(params), nil, text)[0]; got != text {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
}

// TestBytesAreConcealedInTexts checks that hidden bytes are found in each form in which fmt prints them.
func TestBytesAreConcealedInTexts(t *testing.T) {
	for _, raw := range [][]byte{[]byte("secret-key-of-Ann"), {'k', 'e', 'y', 0xff, 0xfe, 0, 'a', 'b', 'c', 0x80}} {
		encoded := base64.StdEncoding.EncodeToString(raw)
		params := fmt.Appendf(nil, `{"key":{"$bytes":%q},"more":{"text":{"$text":%q}},"own":{"$extension":[5,%q]}}`,
			encoded, encoded, encoded)
		for _, rule := range []string{"params.key", "params.key.*", "params.more", "params.own", "params.*"} {
			r := redaction(t, rule)
			for _, format := range []string{"%s", "%q", "%x", "%X", "%v", "%+v"} {
				kept, _ := storage.AttemptTexts(fmt.Sprintf("key <"+format+"> is bad", raw), "")
				got := r.Conceal(ofParams(params), nil, kept)[0]
				if got != "key <***> is bad" && got != `key <"***"> is bad` {
					t.Errorf("%s, %s: %q is shown as %q", rule, format, kept, got)
				}
			}
		}
	}
	params := []byte(`{"key":{"$bytes":"//79/A=="}}`)
	if got := redaction(t, "params.key").Conceal(ofParams(params), nil, "bad \uFFFD text")[0]; got != "bad \uFFFD text" {
		t.Errorf("the mark of an invalid text is shown as %q", got)
	}
}

// TestAHostileValueIsConcealedQuickly bounds the time for values and texts that nearly overlap.
func TestAHostileValueIsConcealedQuickly(t *testing.T) {
	r := redaction(t, "params.key")
	many := make([]string, 2000)
	for i := range many {
		many[i] = fmt.Sprintf("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa%d", i)
	}
	numbers := make([]int, 1<<17)
	for i := range numbers {
		numbers[i] = 200_000 + 7*i
	}
	cut := strings.Repeat(strings.Repeat("a", 1000)+"c…", storage.MaxText/1004)
	digits := strings.Repeat("98765432101234567890", storage.MaxText/20)
	for what, c := range map[string]struct {
		key  any
		text string
	}{
		"a long value": {strings.Repeat("a", 1<<20-1) + "b", cut}, "many values": {many, cut},
		"many numbers": {numbers, digits}, "a value that is everywhere": {strings.Repeat("a", 1<<15), strings.Repeat("a", 1<<16-9)},
	} {
		text := c.text
		params, err := json.Marshal(map[string]any{"key": c.key})
		if err != nil {
			t.Fatal(err)
		}
		began := testserver.ProcessorTime(t)
		r.Conceal(ofParams(params), nil, text)
		if took := testserver.ProcessorTime(t) - began; took > 30*time.Second {
			t.Errorf("%s: %v", what, took)
		}
	}
}

// TestValuesAreConcealedInEachPrintedForm prints hidden values as the standard library does.
func TestValuesAreConcealedInEachPrintedForm(t *testing.T) {
	sprint := func(v any, formats ...string) (texts []string) {
		for _, format := range formats {
			texts = append(texts, fmt.Sprintf(format, v))
		}
		return texts
	}
	moments := func(at time.Time) (texts []string) {
		for _, at := range []time.Time{at, at.UTC()} {
			texts = append(texts, sprint(at, "%v", "%s", "%q", "%#v")...)
			texts = append(texts, sprint(at.Unix(), "%d")...)
			texts = append(texts, sprint(at.UnixMilli(), "%d")...)
			for _, layout := range []string{
				time.DateOnly, time.DateTime, time.RFC3339, time.RFC3339Nano, time.RFC1123, time.RFC1123Z, time.RFC850, time.RFC822,
				time.RFC822Z, time.ANSIC, time.UnixDate, time.RubyDate, time.Stamp,
			} {
				text := at.Format(layout)
				texts = append(texts, text, url.QueryEscape(text), url.PathEscape(text))
			}
		}
		return texts
	}
	inTexts := func(value string) []string {
		encoded, _ := json.Marshal(value) //nolint:errchkjson // cannot fail: a text alone
		var plain strings.Builder
		encoder := json.NewEncoder(&plain)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(value) //nolint:errchkjson // cannot fail: a text alone
		texts := sprint(value, "%s", "%v", "%q", "%+q", "%x", "%X", "% x", "% X")
		return append(texts, string(encoded), strings.TrimSpace(plain.String()), url.QueryEscape(value), url.PathEscape(value),
			"https://x/?"+url.Values{"to": {value}}.Encode()+"&", (&url.URL{Scheme: "https", Host: "x", Path: "/" + value}).String(),
			(&url.URL{Scheme: "https", Host: "x", User: url.UserPassword("ann", value)}).String(),
			(&url.URL{Scheme: "https", Host: "x", Fragment: value}).String(),
			"https://x/?q="+url.QueryEscape(value)+": EOF")
	}
	noon := time.Date(2026, 3, 4, 15, 16, 17, 500_000_000, time.UTC)
	abroad := time.Date(2026, 3, 4, 23, 16, 17, 0, time.FixedZone("", -5*3600))
	for value, texts := range map[string][]string{
		`1234567.5`:                   sprint(1234567.5, "%v", "%g", "%G", "%e", "%E", "%f", "%.0f", "%.2f", "%8.1f"),
		`1234567.54321`:               sprint(1234567.54321, "%v", "%f", "%.0f", "%.1f", "%.2f", "%.3f", "%.4f"),
		`5000.0`:                      append(sprint(5000.0, "%v", "%f", "%.0f", "%e"), "5000"),
		`-5000.25`:                    sprint(-5000.25, "%v", "%f", "%.1f", "%+v"),
		`1.5e-07`:                     append(sprint(1.5e-07, "%v", "%g", "%e"), "1.5e-7"),
		`1.5e+21`:                     append(sprint(1.5e+21, "%v", "%e", "%f"), url.QueryEscape("1.5e+21")),
		`41112222`:                    append(sprint(41112222, "%d", "%v", "%x", "%#X", "%09d"), fmt.Sprint(41112222.0), url.QueryEscape(fmt.Sprint(41112222.0))),
		`90000000000`:                 sprint(90*time.Second, "%v", "%d", "%s"),
		`-90000000000`:                sprint(-90*time.Second, "%v", "%d", "%s"),
		`"2026-03-04T15:16:17.5Z"`:    moments(noon),
		`"2026-03-04T23:16:17-05:00"`: moments(abroad),
		`"ann@example.org"`:           inTexts("ann@example.org"),
		`"a b+c/d?e=f&g;h:i,j$k"`:     inTexts("a b+c/d?e=f&g;h:i,j$k"),
		`"Ä \u003cb\u003e\n\u0001!"`:  inTexts("Ä <b>\n\x01!"),
		`{"ann@example.org": 1}`:      inTexts("ann@example.org"),
	} {
		only := regexp.MustCompile(`^(https://x/?[#?a-z=]*|https://ann:)?[-+"]*(0x|0X)?0*\*\*\*\.?0*(: EOF|@x|"|&)?$`)
		for _, text := range texts {
			params := fmt.Appendf(nil, `{"key":%s}`, value)
			if got := redaction(t, "params.key").Conceal(ofParams(params), nil, text)[0]; !only.MatchString(strings.TrimSpace(got)) {
				t.Errorf("%s: %q is shown as %q", value, text, got)
			}
			if value[0] != '"' {
				continue
			}
			var header string
			if err := json.Unmarshal([]byte(value), &header); err != nil {
				t.Fatal(err)
			}
			got := redaction(t, "header.key").Conceal(ofParams(nil), map[string]string{"key": header}, text)[0]
			if !only.MatchString(got) {
				t.Errorf("the header %s: %q is shown as %q", value, text, got)
			}
		}
	}
	for value, text := range map[string]string{
		`5`: "5.00, 15ns and 5.000000e+00", `12`: "12 of 40, 12ns", `true`: "true", `256.5`: "100", `1234567.5`: "1234567 of 12345",
	} {
		if got := redaction(t, "params.key").Conceal(ofParams([]byte(`{"key":`+value+`}`)), nil, text)[0]; got != text {
			t.Errorf("%s: %q is shown as %q", value, text, got)
		}
	}
}

// TestEachPlaceOfAValueIsConcealed compares texts and values of few letters with a search for each value.
func TestEachPlaceOfAValueIsConcealed(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	word := func(size int) string {
		word := make([]byte, size)
		for i := range word {
			word[i] = "xyz"[rnd.IntN(3)]
		}
		return string(word)
	}
	r := redaction(t, "params.key")
	for range 5000 {
		values := make([]string, 1+rnd.IntN(12))
		for i := range values {
			values[i] = word(3 + rnd.IntN(5))
		}
		text := word(rnd.IntN(40))
		hidden := make([]bool, len(text)+1)
		for _, value := range values {
			for at := range len(text) {
				for i := 0; strings.HasPrefix(text[at:], value) && i < len(value); i++ {
					hidden[at+i] = true
				}
			}
		}
		want := ""
		for i := range len(text) {
			switch {
			case !hidden[i]:
				want += text[i : i+1]
			case !hidden[i+1]:
				want += access.Hidden
			}
		}
		params, _ := json.Marshal(map[string]any{"key": values}) //nolint:errchkjson // cannot fail: texts alone
		if got := r.Conceal(ofParams(params), nil, text)[0]; got != want {
			t.Fatalf("%q without %q is %q, want %q", text, values, got, want)
		}
	}
}

// ofParams returns the parts of a task that has parameters alone.
func ofParams(params []byte) map[string][]byte {
	return map[string][]byte{access.PartParams: params}
}

// TestValuesOfEachPartAreConcealedInTexts checks the values that rules on other parts than the parameters hide.
func TestValuesOfEachPartAreConcealedInTexts(t *testing.T) {
	for rule, part := range map[string]string{
		"params.card": access.PartParams, "progress.card": access.PartProgress, "checkpoint.card": access.PartCheckpoint,
		"result.card": access.PartResult, "step.charge.card": "step.charge", "step.charge": "step.charge", "step.*.card": "step.v1.charge",
	} {
		parts := map[string][]byte{access.PartParams: []byte("{}"), part: []byte(`{"card":"4111 2222"}`)}
		r := redaction(t, rule)
		if got := r.Conceal(parts, nil, "charge 4111 2222 of Bern: declined")[0]; got != "charge *** of Bern: declined" {
			t.Errorf("%s: got %q", rule, got)
		}
		parts[part] = nil
		if got := r.Conceal(parts, nil, "charge 4111 2222: declined")[0]; got != access.Hidden {
			t.Errorf("%s, of a part that cannot be read: got %q", rule, got)
		}
		parts[part] = []byte(`{"city":"Bern"}`)
		if got := r.Conceal(parts, nil, "no town Bern")[0]; got != "no town Bern" && rule != "step.charge" {
			t.Errorf("%s, of a part without the field: got %q", rule, got)
		}
	}
}

// TestNamesInAHiddenValueAreConcealed checks the names of fields, which a map may have from a user, and of fields
// that stand in a value twice.
func TestNamesInAHiddenValueAreConcealed(t *testing.T) {
	for _, to := range []string{
		`{"ann@x.org":1}`, `[{"ann@x.org":true}]`, `{"a":{"ann@x.org":{}}}`, `{"$map":[["ann@x.org",1],[2,3]]}`,
		`{"a":"ann@x.org","a":"bob@x.org"}`, `"ann@x.org"`,
	} {
		for _, rule := range []string{"params.to", "params.*"} {
			params := fmt.Appendf(nil, `{"to":%s}`, to)
			if got := redaction(t, rule).Conceal(ofParams(params), nil, "no user ann@x.org")[0]; got != "no user ***" {
				t.Errorf("%s, %s: got %q", rule, to, got)
			}
		}
	}
	params := []byte(`{"to":{"$$ann":1}}`)
	if got := redaction(t, "params.to").Conceal(ofParams(params), nil, "no user $ann")[0]; got != "no user ***" {
		t.Errorf("a name that begins with $: got %q", got)
	}
}
