package access

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// forms returns a text in the forms in which an error may repeat it: as it is, as Go and JSON quote it, as
// the parts of a URL escape it, and as midge prints and keeps it.
func forms(value string) iter.Seq[string] {
	return func(yield func(string) bool) {
		quoted, ascii := strconv.Quote(value), strconv.QuoteToASCII(value)
		encoded, _ := json.Marshal(value)
		for _, form := range []string{
			value, quoted[1 : len(quoted)-1], ascii[1 : len(ascii)-1], string(encoded[1 : len(encoded)-1]),
			url.QueryEscape(value), url.PathEscape(value), (&url.URL{Path: value}).EscapedPath(),
			url.User(value).String(),
			storage.CleanText(value, 3*len(value)), storage.PrintableText(value, len(quoted)),
		} {
			if !yield(form) {
				return
			}
		}
	}
}

// scalars calls found for each text, number and name of a field in a value of JSON, and for the forms of
// numbers, moments and bytes.
func scalars(text []byte, found func(string)) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	encoded := false // the next text is bytes in base64
	for token, err := dec.Token(); err == nil; token, err = dec.Token() {
		switch token := token.(type) {
		case json.Number:
			found(token.String())
			number(token, found)
		case string:
			found(token)
			if strings.HasPrefix(token, "$$") { // a name that begins with "$", as the JSON shows it
				found(token[1:])
			}
			moment(token, found)
			raw, err := base64.StdEncoding.DecodeString(token)
			if encoded && err == nil && len(raw) > 0 {
				for _, format := range []string{"%s", "%v", "%x", "%X"} {
					found(fmt.Sprintf(format, raw))
				}
			}
			encoded = slices.Contains(inBase64, token)
		}
	}
}

// number calls found for the forms of a number as Go prints it from a field that is a float: with an exponent
// or without, with two decimals as an amount of money, and with the fewest digits of a float32. A form that
// contains the number is not needed.
func number(n json.Number, found func(string)) {
	f, err := n.Float64()
	if err != nil {
		return
	}
	for _, form := range []string{
		strconv.FormatFloat(f, 'g', -1, 64), strconv.FormatFloat(f, 'e', 6, 64),
		strconv.FormatFloat(f, 'f', -1, 64), strconv.FormatFloat(f, 'f', 2, 64),
		strconv.FormatFloat(f, 'g', -1, 32), strconv.FormatFloat(f, 'f', -1, 32),
	} {
		if !strings.Contains(form, n.String()) {
			found(form)
		}
	}
}

// layouts are the forms in which a job is likely to print a moment, without the name of a zone, which RFC
// 3339 does not have. The fourth one is that of the method String.
var layouts = []string{
	time.RFC3339Nano, time.RFC3339, time.DateTime, "2006-01-02 15:04:05.999999999", time.DateOnly,
	"Mon, 02 Jan 2006 15:04:05", time.ANSIC,
}

// moment calls found for the forms of a text that is a moment in RFC 3339: in each of the layouts, in the
// zone of the text, in UTC and in the zone of the process, and as seconds and milliseconds since 1970.
func moment(text string, found func(string)) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return
	}
	for _, t := range []time.Time{t, t.UTC(), t.Local()} { //nolint:gosmopolitan // where jobs print it
		for _, layout := range layouts {
			found(t.Format(layout))
		}
	}
	found(strconv.FormatInt(t.Unix(), 10))
	found(strconv.FormatInt(t.UnixMilli(), 10))
}
