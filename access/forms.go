package access

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// forms collects the forms in which a program prints hidden values with the packages fmt, strconv,
// encoding/json, net/url and time.
type forms []string

// add adds a printed value, and the forms in which a text around it quotes and escapes it.
func (f *forms) add(value string) {
	if len(value) >= leastConcealed && !strings.ContainsFunc(value, escapes) {
		*f = append(*f, value)
		return
	}
	quoted, ascii := strconv.Quote(value), strconv.QuoteToASCII(value)
	escaped, _ := json.Marshal(value) //nolint:errchkjson // cannot fail: a text alone
	var plain bytes.Buffer
	unescaped := json.NewEncoder(&plain)
	unescaped.SetEscapeHTML(false)
	_ = unescaped.Encode(value) //nolint:errchkjson // cannot fail: a text alone
	for _, form := range []string{
		value, quoted[1 : len(quoted)-1], ascii[1 : len(ascii)-1], string(escaped[1 : len(escaped)-1]),
		plain.String()[1 : plain.Len()-2], // Encode ends the line
		storage.CleanText(value, 3*len(value)), storage.PrintableText(value, len(quoted)),
		url.QueryEscape(value), url.PathEscape(value), url.User(value).String(),
		(&url.URL{Path: value}).EscapedPath(), (&url.URL{Fragment: value}).EscapedFragment(),
	} {
		if len(strings.Trim(form, "\uFFFD")) >= leastConcealed {
			*f = append(*f, form)
		}
	}
}

// escapes reports whether a form of a text may escape a character.
func escapes(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	return !letter && (r < '0' || r > '9') && !strings.ContainsRune("-._~", r)
}

// json adds the forms of each text, number and name of a field in a value of JSON.
func (f *forms) json(text []byte) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	encoded := false // the next text is bytes in base64
	for token, err := dec.Token(); err == nil; token, err = dec.Token() {
		switch token := token.(type) {
		case json.Number:
			f.number(token.String())
		case string:
			f.text(token)
			if strings.HasPrefix(token, "$$") { // a name that begins with "$", as the JSON shows it
				f.text(token[1:])
			}
			if raw, err := base64.StdEncoding.DecodeString(token); encoded && err == nil && len(raw) > 0 {
				f.text(string(raw))
				f.add(fmt.Sprintf("%v", raw))
				f.add(fmt.Sprintf("%#v", raw))
			}
			encoded = slices.Contains(inBase64, token)
		}
	}
}

// text adds the forms of a text, which may be a moment.
func (f *forms) text(text string) {
	f.add(text)
	if len(text) < leastConcealed {
		return
	}
	for _, format := range []string{"%x", "%X", "% x", "% X"} {
		*f = append(*f, fmt.Sprintf(format, text))
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return
	}
	for _, at := range []time.Time{at, at.UTC(), at.Local()} { //nolint:gosmopolitan // where jobs print it
		f.add(at.String())
		f.add(at.GoString())
		f.add(strconv.FormatInt(at.Unix(), 10))
		f.add(strconv.FormatInt(at.UnixMilli(), 10))
		for _, layout := range layouts {
			f.add(at.Format(layout))
		}
	}
}

// layouts are the layouts of the package time that have a date. Those with the name of a zone stand here
// without it too, because RFC 3339 does not have the name.
var layouts = []string{
	time.DateOnly, time.DateTime, time.RFC3339, time.RFC3339Nano, time.RFC1123, time.RFC1123Z, time.RFC850,
	time.RFC822, time.RFC822Z, time.ANSIC, time.UnixDate, time.RubyDate, time.Stamp,
	"Mon, 02 Jan 2006 15:04:05", "Monday, 02-Jan-06 15:04:05", "02 Jan 06 15:04",
}

// number adds the forms of a number: as an integer, a float and a duration.
func (f *forms) number(number string) {
	if len(number) < leastConcealed {
		return // so it is too short in each form
	}
	printed := func(form string) {
		if len(form) >= leastConcealed {
			*f = append(*f, form)
		}
		if strings.Contains(form, "+") { // in an exponent
			*f = append(*f, url.QueryEscape(form))
		}
	}
	printed(number)
	if n, err := strconv.ParseUint(strings.TrimPrefix(number, "-"), 10, 64); err == nil {
		// A shorter one may be a decimal number by chance.
		if hexadecimal := strconv.FormatUint(n, 16); len(hexadecimal) > 2*leastConcealed {
			printed(hexadecimal)
			printed(strings.ToUpper(hexadecimal))
		}
		f.add(time.Duration(min(n, math.MaxInt64)).String())
	}
	float, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return
	}
	encoded, _ := json.Marshal(float) //nolint:errchkjson // cannot fail: a finite float
	printed(string(encoded))
	whole := strconv.FormatFloat(float, 'f', -1, 64)
	printed(whole)
	for _, format := range []byte("gG") {
		printed(strconv.FormatFloat(float, format, -1, 64))
	}
	for _, format := range []byte("eE") {
		printed(strconv.FormatFloat(float, format, 6, 64))
	}
	for precision := range 7 {
		if rounded := strconv.FormatFloat(float, 'f', precision, 64); !strings.HasPrefix(rounded, whole) {
			printed(rounded)
		}
	}
}
