package access_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

func redaction(t testing.TB, patterns ...string) *access.Redaction {
	t.Helper()
	r, err := access.Redact(patterns...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRedactionOfJSON(t *testing.T) {
	for _, c := range []struct{ rule, text, want string }{
		{"params.card.*", `{"card":{"no":"4111","cvc":[1,2]},"n":1}`, `{"card":{"no":"***","cvc":"***"},"n":1}`},
		{"params.card", `{ "card" : {"no":"4111"} , "n":12345678901234567890}`, `{ "card" : "***" , "n":12345678901234567890}`},
		{"params.card.*", `{"card":["4111",{"no":"4"}]}`, `{"card":["***","***"]}`},
		{"params.items.card", `{"items":[{"card":1,"x":2},{"card":3}]}`, `{"items":[{"card":"***","x":2},{"card":"***"}]}`},
		{"params.**.password", `{"password":1,"a":{"b":{"Password":2}},"c":3}`, `{"password":"***","a":{"b":{"Password":"***"}},"c":3}`},
		{"params.card_*", `{"card_no":1,"card":2,"CARD_X":3}`, `{"card_no":"***","card":2,"CARD_X":"***"}`},
		{"params.card.*", `{"card":"4111"}`, `{"card":"4111"}`},
		{"params.a", `{"a":1,"a":2}`, `{"a":"***","a":"***"}`},
		{"params.*", `[1,2]`, `["***","***"]`},
		{"params.a", `[[{"a":1}]]`, `[[{"a":"***"}]]`},
		{"params.a", `{"a":`, `"***"`},
		{"params.a", `not json`, `"***"`},
		{"params.a", `{"b":1} {"a":2}`, `"***"`},
		{"params.a", strings.Repeat("[", 101) + strings.Repeat("]", 101), `"***"`},
		{"result.a", `{"a":1}`, `{"a":1}`},
		{"params.password", `{"$map":[["password","hunter2"],[1,2]]}`, `{"$map":"***"}`},
		{"params.a.password", `{"a":{"$map":[["password","x"]]},"b":{"$map":[[1,2]]}}`, `{"a":{"$map":"***"},"b":{"$map":[[1,2]]}}`},
		{"params.a.*.x", `{"a":[{"y":{"$map":[["x",1]]}}]}`, `{"a":[{"y":{"$map":"***"}}]}`},
		{"params.$secret", `{"$$secret":"hunter2","$other":1}`, `{"$$secret":"***","$other":1}`},
		{"params.a.$*", `{"a":{"$$secret":{"x":1}},"b":1}`, `{"a":{"$$secret":"***"},"b":1}`},
		{"params.card.number", `{"card.number":1,"card":{"number":2},"cards.number":3}`, `{"card.number":"***","card":{"number":"***"},"cards.number":3}`},
		{"params.a.*.c", `{"a.b":{"c":1},"a":{"b.c":2,"c":3},"A.b.C.d":4}`, `{"a.b":{"c":"***"},"a":{"b.c":"***","c":3},"A.b.C.d":"***"}`},
		{"params.$a.b", `{"$$a.b":1}`, `{"$$a.b":"***"}`},
		{"params.a.**", `{"a":{"b":{"c":1}},"b":2}`, `{"a":{"b":"***"},"b":2}`},
		{"params.a.**.**", `{"a":[{"b":1}]}`, `{"a":["***"]}`},
		{"params.**.a.**.b", `{"b":1,"a":{"b":2,"c":{"b":3}},"c":{"a":[{"b":4}]}}`, `{"b":1,"a":{"b":"***","c":{"b":"***"}},"c":{"a":[{"b":"***"}]}}`},
		{"params.*secret*key", `{"secret_key":1,"a_secret_b_key":2,"keysecret":3}`, `{"secret_key":"***","a_secret_b_key":"***","keysecret":3}`},
	} {
		got := redaction(t, c.rule).JSON(access.PartParams, []byte(c.text))
		if string(got) != c.want {
			t.Errorf("%s of %s: got %s, want %s", c.rule, c.text, got, c.want)
		}
	}
}

func TestRedactionOfSteps(t *testing.T) {
	for _, c := range []struct{ rule, step, text, want string }{
		{"step.charge.card", "charge", `{"card":1,"id":2}`, `{"card":"***","id":2}`},
		{"step.charge.card", "Charge", `[{"card":1}]`, `[{"card":"***"}]`},
		{"step.charge.card", "refund", `{"card":1}`, `{"card":1}`},
		{"step.charge", "charge", `{"card":1}`, `"***"`},
		{"step.charge", "charge", `7`, `"***"`},
		{"step.*.card", "any name", `{"card":1}`, `{"card":"***"}`},
		{"step.charge card.number", "charge card", `{"number":1}`, `{"number":"***"}`},
		{"step.mail.ann", "mail.ann", `true`, `"***"`},
		{"step.**.card", "a.b", `{"c":{"card":1}}`, `{"c":{"card":"***"}}`},
		{"step.charge.card", "charge", `no json`, `"***"`},
		{"checkpoint.card", "card", `{"card":1}`, `{"card":1}`},
	} {
		if got := redaction(t, c.rule).StepJSON(c.step, []byte(c.text)); string(got) != c.want {
			t.Errorf("%s of step %s: got %s, want %s", c.rule, c.step, got, c.want)
		}
	}
	if got := (*access.Redaction)(nil).StepJSON("a", []byte("7")); string(got) != "7" {
		t.Errorf("no redaction: got %s", got)
	}
}

func TestRedactionOfHeaders(t *testing.T) {
	given := map[string]string{"authorization": "secret", "tenant": "acme", "x.token": "secret"}
	got := redaction(t, "header.Authorization", "header.x.*").Headers(given)
	want := map[string]string{"authorization": "***", "tenant": "acme", "x.token": "***"}
	for name := range given {
		if got[name] != want[name] {
			t.Errorf("header %s: got %q, want %q", name, got[name], want[name])
		}
	}
	if given["authorization"] != "secret" {
		t.Error("the headers given were changed")
	}
}

func TestAFilterByAHiddenFieldIsKnown(t *testing.T) {
	r := redaction(t, "params.card.*", "params.**.pin", "header.auth*")
	for _, c := range []struct {
		field string
		want  bool
	}{
		{"params.card.no", true},
		{"params.card.no.x", true},
		{"params.card", true}, // it has hidden fields
		{"params.x.pin", true},
		{"params.x", true}, // a pin may lie in it
		{"header.authorization", true},
		{"header.tenant", false},
		{"result.card", false},
	} {
		if got := r.Hides(strings.Split(c.field, ".")...); got != c.want {
			t.Errorf("%s: hidden %t, want %t", c.field, got, c.want)
		}
	}
	r = redaction(t, "params.card.number", "params.a.*.b", "header.auth.token", "header.x.*.y")
	for _, c := range []struct {
		field []string
		want  bool
	}{
		{[]string{"params", "card", "0", "number"}, true},
		{[]string{"params", "0", "card", "-1", "07", "Number"}, true},
		{[]string{"params", "card", "0"}, true},
		{[]string{"params", "card", "0", "brand"}, false},
		{[]string{"params", "a", "5", "b"}, true},
		{[]string{"params", "a", "5", "6", "7", "b"}, true},
		{[]string{"params", "a", "x", "y", "b"}, false},
		{[]string{"params", "card.number"}, true},
		{[]string{"params", "Card.number", "0"}, true},
		{[]string{"params", "card.brand"}, false},
		{append([]string{"params"}, strings.Split(strings.Repeat("0.", 2000)+"c", ".")...), false},
		{[]string{"header", "auth.token"}, true},
		{[]string{"header", "Auth.Token"}, true},
		{[]string{"header", "auth", "token"}, true},
		{[]string{"header", "auth.user"}, false},
		{[]string{"header", "x.1.y"}, true},
		{[]string{"header", "auth.0.token"}, false},
	} {
		if got := r.Hides(c.field...); got != c.want {
			t.Errorf("%.60q: hidden %t, want %t", c.field, got, c.want)
		}
	}
	var none *access.Redaction
	if none.Hides("params", "a") || string(none.JSON("params", []byte("x"))) != "x" {
		t.Error("no redaction hides something")
	}
}

// TestRedactionOfALongTextIsQuick bounds the time for hostile texts of a megabyte, because anybody who
// enqueues tasks can write such texts.
func TestRedactionOfALongTextIsQuick(t *testing.T) {
	const size = 1 << 20
	fill := func(before, text, after string) string {
		return before + strings.Repeat(text, (size-len(before)-len(after))/len(text)) + after
	}
	r := redaction(t, "params.card.number", "params.*secret*key", "params.**.a.**.b.*c*d*")
	for what, text := range map[string]string{
		"a list below a long key":    `{"` + strings.Repeat("K", size/2) + `":` + fill(`[`, `1,`, `1]}`),
		"a key that nearly matches":  fill(`{"`, "secret", `":1}`),
		"a key of many dots":         fill(`{"`, "a.", `":1}`),
		"many fields":                fill(`{`, `"a":1,`, `"a":1}`),
		"a list of many lists":       fill(`[`, `[],`, `[]]`),
		"deep lists below long keys": strings.Repeat(`{"`+strings.Repeat("a", size/100)+`":`, 90) + "1" + strings.Repeat("}", 90),
	} {
		began := testserver.ProcessorTime(t)
		got := r.JSON(access.PartParams, []byte(text))
		if took := testserver.ProcessorTime(t) - began; took > 30*time.Second || !json.Valid(got) {
			t.Errorf("%s: %v for %d bytes, valid %t", what, took, len(text), json.Valid(got))
		}
	}
}

// TestAWordOfARuleMatchesAsAFilterDoes checks that "*" means the same in a rule as in a filter.
func TestAWordOfARuleMatchesAsAFilterDoes(t *testing.T) {
	words := func(letters string, most int) (all []string) {
		for before := []string{""}; len(before[0]) < most; {
			var longer []string
			for _, word := range before {
				for _, letter := range letters {
					longer = append(longer, word+string(letter))
				}
			}
			all, before = append(all, longer...), longer
		}
		return all
	}
	for _, rule := range words("ab*", 5) {
		if strings.Trim(rule, "*") == "" {
			continue
		}
		r := redaction(t, "header."+rule)
		f, err := filter.Parse("kind:" + rule)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range words("ab", 6) {
			hidden := r.Headers(map[string]string{word: "x"})[word] == access.Hidden
			if matches := f.Match(storage.Task{Kind: word}); hidden != matches {
				t.Fatalf("%s of %s: a rule says %t, a filter %t", rule, word, hidden, matches)
			}
		}
	}
}

func TestBadRedactions(t *testing.T) {
	for _, pattern := range []string{"", "params", "card.no", "params.", "params..a", "params.[a", `params.\a`} {
		var invalid *storage.InvalidError
		if _, err := access.Redact(pattern); !errors.As(err, &invalid) {
			t.Errorf("%q: got %v, want an InvalidError", pattern, err)
		}
	}
}

// FuzzRedaction searches for a secret that is not hidden, and for output that is not JSON.
func FuzzRedaction(f *testing.F) {
	f.Add(`{"a":{"secret":"canary"},"b":[{"secret":"canary"}]}`)
	f.Add(`{"secret":["canary",{"x":"canary"}]} `)
	r := redaction(f, "params.**.secret")
	f.Fuzz(func(t *testing.T, text string) {
		got := r.JSON(access.PartParams, []byte(text))
		if !json.Valid(got) {
			t.Fatalf("%q became %q, which is no JSON", text, got)
		}
		var v any
		dec := json.NewDecoder(bytes.NewReader(got))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		if told := secrets(v); told != "" {
			t.Errorf("%q shows %s", text, told)
		}
	})
}

// secrets returns a value of a field "secret" that is not hidden, and "" if there is none.
func secrets(v any) string {
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			if strings.ToLower(name) == "secret" && x != access.Hidden {
				return fmt.Sprint(x)
			}
			if told := secrets(x); told != "" {
				return told
			}
		}
	case []any:
		for _, x := range v {
			if told := secrets(x); told != "" {
				return told
			}
		}
	}
	return ""
}

func ExampleRedact() {
	redaction, err := access.Redact("params.card.*", "header.authorization")
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", redaction.JSON(access.PartParams, []byte(`{"order":7,"card":{"number":"4111 1111 1111 1111"}}`)))
	// Output: {"order":7,"card":{"number":"***"}}
}

// TestValuesAreConcealedInTexts checks that an error which repeats a hidden value is shown without it, however
// it quotes the value.
func TestValuesAreConcealedInTexts(t *testing.T) {
	r, err := access.Redact("params.card.*", "params.pin", "header.authorization")
	if err != nil {
		t.Fatal(err)
	}
	params := []byte(`{"card":{"number":"4111 2222","holder":"Ann \"X\" Ä\n","cvv":987,"ok":true,"n":12},"pin":55555,"city":"Bern"}`)
	headers := map[string]string{"authorization": "Bearer abc", "tenant": "acme"}
	for text, want := range map[string]string{
		"card 4111 2222 of Bern declined":        "card *** of Bern declined",
		`holder "Ann \"X\" Ä\n" is unknown`:      `holder "***" is unknown`,
		"holder Ann \"X\" Ä\n":                   "holder ***",
		"cvv 987, pin 55555, number of digits 8": "cvv ***, pin ***, number of digits 8",
		"401 for Bearer abc of acme":             "401 for *** of acme",
		"true, 12 of 40":                         "true, 12 of 40", // too short to distinguish from chance
		"":                                       "",
	} {
		if got := r.Conceal(ofParams(params), headers, text)[0]; got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for _, bad := range []string{"", "{", "4111"} {
		if got := r.Conceal(ofParams([]byte(bad)), nil, "field card: got 4111", ""); bad != "4111" && (got[0] != access.Hidden || got[1] != "") {
			t.Errorf("of parameters %q: got %q, want all of it hidden", bad, got)
		}
	}
	var none *access.Redaction
	if got := none.Conceal(ofParams(params), headers, "4111 2222"); got[0] != "4111 2222" {
		t.Errorf("without a redaction: got %q", got)
	}
}
