package dashboard

import "net/http"

func (s *server) dead(_ *http.Request, v *view) error {
	return redirectError(v.URL("/tasks", "state", "dead"))
}
