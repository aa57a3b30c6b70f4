package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
)

// TestAUniqueKeyIsNotShown checks the pages of a task for its unique key. The key is a hash of parameters without
// a secret, so that whoever sees the key can try the values of a hidden parameter.
func TestAUniqueKeyIsNotShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		redact, err := access.Redact("params.pin")
		if err != nil {
			t.Fatal(err)
		}
		key := storage.UniqueKey([]byte("k"), []byte("1234"))
		for _, cfg := range []dashboard.Config{{}, as(access.Viewer), {Redact: redact}} {
			s, _ := inserted(t, cfg, storage.Insert{
				Ref: theTask, Encoding: "json", Payload: []byte(`{"pin":1234}`),
				Unique: storage.Unique{Key: key, Mode: storage.UniqueLife},
			})
			s.shows("/r/"+theTask.String(), "<dt>unique</dt>", "life")
			for _, path := range []string{
				"/r/" + theTask.String(), "/tasks", "/search?q=" + theTask.ID, "/edit?ref=" + theTask.String(),
				"/action?do=delete&ref=" + theTask.String(), "/r/" + theTask.String() + "/params",
			} {
				if page := s.do(request(http.MethodGet, path, "")).Body.String(); strings.Contains(page, key) {
					t.Errorf("GET %s shows the unique key", path)
				}
			}
		}
	})
}
