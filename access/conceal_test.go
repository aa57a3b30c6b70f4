package access_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
	numbers, moments := make([]float64, 100_000), make([]time.Time, 35_000)
	for i := range numbers {
		numbers[i] = 1000.125 + float64(i)
	}
	for i := range moments {
		moments[i] = time.Unix(int64(i), 0).UTC()
	}
	for what, key := range map[string]any{
		"a long value": strings.Repeat("a", 1<<20-1) + "b", "many values": many, "100,000 numbers": numbers, "35,000 moments": moments,
	} {
		params, err := json.Marshal(map[string]any{"key": key})
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Repeat(strings.Repeat("a", 1000)+"c…", storage.MaxText/1004)
		began := testserver.ProcessorTime(t)
		got := r.Conceal(ofParams(params), nil, text)[0]
		if hidden := got == access.Hidden; hidden != strings.Contains(what, ",000") {
			t.Errorf("%s: the text is hidden as a whole: %t", what, hidden)
		}
		if took := testserver.ProcessorTime(t) - began; took > 30*time.Second {
			t.Errorf("%s: %v", what, took)
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
