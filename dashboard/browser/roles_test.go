package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
)

// offers returns the actions that a page offers.
const offers = `[...document.querySelectorAll('main a[href*="/action?"], main a[href*="/edit?"], main a[href$="/add"], main button[name=do]')]
	.filter(e => e.checkVisibility()).map(e => e.name === 'do' ? e.value : e.pathname === '/action' ? new URLSearchParams(e.search).get('do') : e.pathname.split('/').at(-1))`

// verbs has the verb that each action needs.
var verbs = map[string]access.Verb{
	"requeue": access.Operate, "cancel": access.Operate, "pause": access.Operate, "resume": access.Operate, "run": access.Operate,
	"pause-schedule": access.Operate, "resume-schedule": access.Operate, "limit": access.Operate, "clear-limit": access.Operate,
	"pause-partition": access.Operate, "resume-partition": access.Operate,
	"delete": access.Alter, "remove": access.Alter, "unschedule": access.Alter, "edit": access.Alter, "add": access.Enqueue,
}

// offering are the pages that offer actions.
var offering = []string{
	"queues", "queue", "tasks", "tasks-dead", "dead", "cause", "task-dead", "task-pending", "schedules", "edit", "enqueue",
}

func TestEachPageForEachRole(t *testing.T) {
	t.Parallel()
	var role access.Role
	r := newRigOf(t, "night", dashboard.Config{Who: func(*http.Request) (access.User, bool) {
		return access.User{Name: "ann", Role: role}, true
	}})
	r.boundPartitions()
	pages := pagesOf(t.Context(), "night", r.Scene)
	role = access.Admin
	tb := r.tab("/", "light")
	offered := map[access.Verb]int{}
	for i, is := range access.Roles() {
		role = is
		for j, p := range pages {
			// All roles see the same on pages without actions, so a viewer is enough for them.
			if actions := slices.Contains(offering, p.name) || strings.HasPrefix(p.name, "ask-"); !actions && role != access.Viewer {
				continue
			}
			for _, action := range tb.seenBy(role, p, themes[(i+j)%2]) {
				offered[verbs[action]]++
			}
		}
	}
	for _, verb := range []access.Verb{access.Operate, access.Alter, access.Enqueue} {
		if offered[verb] == 0 {
			t.Errorf("no page offers what takes the verb %s", verb)
		}
	}
}

// seenBy opens a page as a user with a role, and returns the actions that the page offers. The test fails if
// the page shows or offers more than the role permits.
func (tb *tab) seenBy(role access.Role, p named, theme string) []string {
	tb.t.Helper()
	refused := strings.HasPrefix(p.name, "ask-") && !role.May(access.Operate) ||
		(p.name == "edit" || p.name == "ask-delete") && !role.May(access.Alter) || p.name == "enqueue" && !role.May(access.Enqueue)
	tb.hush(refused || p.name == "error") // the browser logs each refusal
	tb.open(p.path, theme, 1440)
	if is := eval[bool](tb, `document.title.startsWith('Forbidden')`); is != refused {
		tb.t.Errorf("%s for %s: refused %t, want %t", p.name, role, is, refused)
	}
	actions := eval[[]string](tb, offers)
	for _, action := range actions {
		if verb, known := verbs[action]; !known || !role.May(verb) {
			tb.t.Errorf("%s offers %s to %s", p.name, action, role)
		}
	}
	if shows := eval[bool](tb, `!!document.querySelector('[data-part^="body-"]')`); shows && !role.May(access.Payloads) {
		tb.t.Errorf("%s shows payloads to %s", p.name, role)
	}
	return actions
}
