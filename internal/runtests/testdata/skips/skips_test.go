package skips

import "testing"

func TestSkips(t *testing.T) { t.Skip("to show that this fails") }
