package ledger

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/packed"
	"github.com/midgehq/midge/storage"
)

// Deploy is the moment at which a version of a program was first seen.
type Deploy struct {
	// At is the first minute in which a sample saw the version.
	At time.Time
	// Version is the version of the runners.
	Version string
	// Runners is the largest number of these runners that a sample of the span saw.
	Runners int
}

// build is a version of runners that the samples of a page saw. The first part of a page has its builds.
type build struct {
	version string
	first   int64 // the minute at which it was first seen; 0 if it was there before, or replaced nothing
	runners int64 // the largest number of runners that a sample saw
}

// maxBuilds bounds the versions of a page.
const maxBuilds = 20

// saw notes that runners of a version were seen.
func (p *page) saw(b build) {
	at := slices.IndexFunc(p.builds, func(o build) bool { return o.version == b.version })
	switch {
	case at >= 0:
		o := &p.builds[at]
		o.first, o.runners = min(o.first, b.first), max(o.runners, b.runners)
	case len(p.builds) < maxBuilds:
		p.builds = append(p.builds, b)
	}
}

// knownBuilds are the versions of runners that pages name, without those that had been gone for an hour when
// the last page that names a version was written.
type knownBuilds map[string]knownBuild

// knownBuild is the minute since which a version has been seen, and the page that named it last.
type knownBuild struct {
	first   int64
	version int64 // of the page
	minute  int64 // of its last sample
}

// goneAfter is after how many minutes a version that no page names is forgotten. A version that comes back
// sooner is no deploy: a program may run for only a few minutes of each hour.
const goneAfter = 60

// learn takes in the versions that a page names.
func (k knownBuilds) learn(p *page, version int64) {
	for _, b := range p.builds {
		if version > k[b.version].version {
			k[b.version] = knownBuild{b.first, version, p.lastMinute()}
		}
	}
	if len(p.builds) > 0 {
		maps.DeleteFunc(k, func(_ string, b knownBuild) bool {
			return b.version < version && b.minute < p.lastMinute()-goneAfter
		})
	}
}

// learnAll takes in the versions of pages that were read, the earliest first.
func (k knownBuilds) learnAll(pages []stored) {
	for i := range pages {
		if s := &pages[i]; s.page != nil && s.part == 0 {
			k.learn(s.page, s.version)
		}
	}
}

// sawAll notes the versions of the runners that this process saw at a minute. A version that was known before
// is not new. If there is no page before, nobody knows how long a version has been running. The first versions
// of a history replace nothing, so they are a start and no deploy.
func (l *Ledger) sawAll(s *stored, minute int64, begins bool) {
	if s.part != 0 {
		return
	}
	for _, version := range names(l.kinds.builds) {
		b := build{version, minute, l.kinds.builds[version]}
		if begins || len(l.known.builds) == 0 {
			b.first = 0
		}
		if known, ok := l.known.builds[version]; ok {
			b.first = known.first
		}
		s.saw(b)
	}
}

// sawDay notes the versions of pages of minutes in a page of hours, without those of a later day.
func (s *stored) sawDay(builds map[string]build) {
	for _, version := range names(builds) {
		if b := builds[version]; s.part == 0 && b.first < s.start+s.step*int64(s.slots()) {
			s.saw(b)
		}
	}
}

// appendBuilds writes the versions of a page.
func appendBuilds(b []byte, builds []build) []byte {
	b = binary.AppendUvarint(b, uint64(len(builds)))
	for _, one := range builds {
		b = packed.AppendText(b, one.version)
		b = binary.AppendUvarint(b, uint64(one.first))
		b = binary.AppendUvarint(b, uint64(one.runners))
	}
	return b
}

// builds reads the versions of a page.
func (r *reader) builds() (all []build) {
	n := r.Size()
	if n > maxBuilds {
		r.Bad = true
	}
	for ; n > 0 && !r.Bad; n-- {
		all = append(all, build{storage.CleanText(r.Text(), storage.MaxName), r.Size(), r.Size()})
	}
	return all
}

// deploys returns the versions that were first seen in the span of the grid, in the order of time.
func (g *grid) deploys() (all []Deploy) {
	for version, b := range g.builds {
		if b.first >= g.from && b.first < g.end() {
			all = append(all, Deploy{time.Unix(b.first*60, 0).UTC(), version, int(b.runners)})
		}
	}
	slices.SortFunc(all, func(a, b Deploy) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Version, b.Version))
	})
	return all
}

// addBuilds takes in the versions of a page.
func (g *grid) addBuilds(builds []build) {
	for _, b := range builds {
		if o, known := g.builds[b.version]; known {
			b.first, b.runners = min(b.first, o.first), max(b.runners, o.runners)
		}
		g.builds[b.version] = b
	}
}
