package dashboard

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// FuzzTheSizeOfIndentedJSON checks that the size of a form is never reported as smaller than it is.
func FuzzTheSizeOfIndentedJSON(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, `[1,2,[3,[4,"a\"],[b"]]]`, `{"a":{"b":[{"c":"\\"},{"d":"é"}]},"e":null}`, `"[[[{{{"`, `[[[[[[[1,1,1,1]]]]]]]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var short, pretty bytes.Buffer
		if json.Compact(&short, text) != nil || json.Indent(&pretty, short.Bytes(), "", "  ") != nil {
			return
		}
		sent := url.QueryEscape(strings.ReplaceAll(pretty.String(), "\n", "\r\n"))
		if most := indentedSize(short.Bytes()); int64(len(sent)) > most {
			t.Errorf("%s takes %d bytes, want at most %d", short.Bytes(), len(sent), most)
		}
	})
}
