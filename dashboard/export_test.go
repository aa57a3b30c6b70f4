package dashboard

import "net/http"

// Patterns returns the patterns of all routes of a dashboard, as http.ServeMux has them.
func Patterns(cfg Config) []string {
	s := &server{cfg: cfg, mux: http.NewServeMux()}
	return s.routes()
}
