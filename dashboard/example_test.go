package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage/memory"
)

// An application mounts the dashboard in its mux, behind its own login.
func ExampleHandler() {
	store, err := memory.Open(memory.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	board, err := dashboard.Handler(store, dashboard.Config{
		Base: "/midge",
		Who: func(r *http.Request) (access.User, bool) {
			name, _, ok := r.BasicAuth() // or the user of the application's login
			return access.User{Name: name, Role: access.Operator}, ok
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// go board.Run(ctx) keeps the history, until ctx ends.
	mux := http.NewServeMux()
	mux.Handle("/midge/", board)

	r := httptest.NewRequest(http.MethodGet, "/midge/", nil)
	r.SetBasicAuth("ann", "secret")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Println(w.Code, strings.Contains(w.Body.String(), "All clear."))
	// Output: 200 true
}
