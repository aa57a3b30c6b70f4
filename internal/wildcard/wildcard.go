// Package wildcard compares texts with patterns in which a "*" stands for any text. The filters of tasks and
// the rules that redact fields write such patterns.
package wildcard

import "strings"

// Match reports whether name is the parts in their order, with any text between each two of them. A pattern
// such as "mail*old" has the parts "mail" and "old", and the single part of a pattern without a "*" is the
// whole name. There is at least one part.
//
// Match takes the first place of each part, because no later place leaves more text for the parts behind it.
// So its time grows with the length of the name times the length of the longest part.
func Match(parts []string, name string) bool {
	last := len(parts) - 1
	if last == 0 {
		return name == parts[0]
	}
	name, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1:last] {
		at := strings.Index(name, part)
		if at < 0 {
			return false
		}
		name = name[at+len(part):]
	}
	return strings.HasSuffix(name, parts[last])
}
