package dashboard

import "net/http"

func (s *server) askAll(*http.Request, *view, act, *askData) error { return errNoPage }

func (s *server) doAll(*http.Request, act, *askData) (notice, error) { return notice{}, errNoPage }
