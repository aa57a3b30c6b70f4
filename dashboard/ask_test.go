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
// except if an action is called Cancel.
func TestNoTwoButtonsOfADialogAreEqual(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Admin))
		dead, waits := s.list("mail", storage.Dead), s.list("payments", storage.Waiting)
		for path, want := range map[string]string{
			"/action?do=cancel&ref=" + waits[0]:                                           "Keep task, Cancel task",
			"/action?do=cancel&ref=" + waits[0] + "&ref=" + waits[1]:                      "Keep tasks, Cancel tasks",
			"/action?do=cancel&all=1&queue=payments&filter=kind:charge_card":              "Keep tasks, Cancel tasks",
			"/action?do=cancel&all=1&queue=payments&filter=kind:none":                     "Back",
			"/action?do=requeue&ref=" + dead[0]:                                           "Back, Requeue",
			"/action?do=delete&ref=" + dead[0]:                                            "Back, Delete",
			"/action?do=delete&all=1&queue=mail&state=dead":                               "Back, Delete",
			"/action?do=pause&queue=mail":                                                 "Back, Pause",
			"/action?do=resume&queue=payments":                                            "Back, Resume",
			"/action?do=pause-partition&queue=mail&partition=acme":                        "Back, Pause",
			"/action?do=resume-partition&queue=mail&partition=acme":                       "Back, Resume",
			"/action?do=limit&queue=mail":                                                 "Back, Limit",
			"/action?do=clear-limit&queue=mail":                                           "Back, Clear limit",
			"/action?do=remove&queue=mail":                                                "Back, Remove",
			"/action?do=run&ref=default/" + storage.CursorPrefix + "clean_up":             "Back, Run now",
			"/action?do=unschedule&ref=default/" + storage.CursorPrefix + "clean_up":      "Back, Remove",
			"/action?do=pause-schedule&ref=default/" + storage.CursorPrefix + "clean_up":  "Back, Pause",
			"/action?do=resume-schedule&ref=default/" + storage.CursorPrefix + "clean_up": "Back, Resume",
			"/edit?ref=" + dead[0]:                                                        "Back, Save, Save and requeue",
			"/queues/mail/add":                                                            "Back, Enqueue",
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
