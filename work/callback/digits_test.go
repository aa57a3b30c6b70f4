package callback

import (
	"reflect"
	"testing"

	"github.com/midgehq/midge"
)

// TestAnIntegerKeepsItsDigits stores answers of JSON with integers as MessagePack, whose largest has 64 bits.
func TestAnIntegerKeepsItsDigits(t *testing.T) {
	for body, want := range map[string]any{
		`{"id":18446744073709551615}`:      map[string]any{"id": uint64(18446744073709551615)},
		`{"id":18446744073709551616}`:      `{"id":18446744073709551616}`,
		`[{"id":-9223372036854775809}, 1]`: `[{"id":-9223372036854775809}, 1]`,
		`{"id":1e30}`:                      map[string]any{"id": 1e30},
	} {
		if got := resultOf(midge.MessagePack, []byte(body)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v, want %#v", body, got, want)
		}
	}
}
