package dashboard_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/storage"
)

var buttonText = regexp.MustCompile(`(?s)<(?:a|button)[^>]*>([^<]*)</(?:a|button)>`)

// TestNoTwoButtonsOfADialogAreEqual checks every form that asks: each has one button that leaves it, "Back"
// except where an act is called Cancel.
func TestNoTwoButtonsOfADialogAreEqual(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Admin))
		dead, waits := s.list("mail", storage.Dead), s.list("payments", storage.Waiting)
		for path, want := range map[string]string{
			"/act?do=cancel&ref=" + waits[0]:                                           "Keep task, Cancel task",
			"/act?do=cancel&ref=" + waits[0] + "&ref=" + waits[1]:                      "Keep tasks, Cancel tasks",
			"/act?do=cancel&all=1&queue=payments&filter=kind:charge_card":              "Keep tasks, Cancel tasks",
			"/act?do=cancel&all=1&queue=payments&filter=kind:none":                     "Back",
			"/act?do=requeue&ref=" + dead[0]:                                           "Back, Requeue",
			"/act?do=delete&ref=" + dead[0]:                                            "Back, Delete",
			"/act?do=delete&all=1&queue=mail&state=dead":                               "Back, Delete",
			"/act?do=pause&queue=mail":                                                 "Back, Pause",
			"/act?do=resume&queue=payments":                                            "Back, Resume",
			"/act?do=remove&queue=mail":                                                "Back, Remove",
			"/act?do=run&ref=default/" + storage.CursorPrefix + "clean_up":             "Back, Run now",
			"/act?do=unschedule&ref=default/" + storage.CursorPrefix + "clean_up":      "Back, Remove",
			"/act?do=pause-schedule&ref=default/" + storage.CursorPrefix + "clean_up":  "Back, Pause",
			"/act?do=resume-schedule&ref=default/" + storage.CursorPrefix + "clean_up": "Back, Resume",
			"/edit?ref=" + dead[0]:                                                     "Back, Save, Save and requeue",
			"/queues/mail/add":                                                         "Back, Enqueue",
		} {
			_, buttons, _ := strings.Cut(s.get(path), `<div class="buttons">`)
			buttons, _, _ = strings.Cut(buttons, "</div>")
			var texts []string
			for _, m := range buttonText.FindAllStringSubmatch(buttons, -1) {
				texts = append(texts, m[1])
			}
			if got := strings.Join(texts, ", "); got != want {
				t.Errorf("GET %s: the buttons are %q, want %q", path, got, want)
			}
		}
	})
}
