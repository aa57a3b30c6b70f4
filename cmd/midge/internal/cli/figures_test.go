package cli

import (
	"bufio"
	"encoding/json"
	"html"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
)

// jsonl runs a line, and returns its records.
func (p *pages) jsonl(line string) (records []map[string]any) {
	p.t.Helper()
	in := bufio.NewScanner(strings.NewReader(p.run(line + " -o jsonl").out))
	for in.Buffer(nil, 1<<20); in.Scan(); {
		var record map[string]any
		if err := json.Unmarshal(in.Bytes(), &record); err != nil {
			p.t.Fatalf("midge %s: %v", line, err)
		}
		records = append(records, record)
	}
	return records
}

// number returns a number of a record.
func number(record map[string]any, field string) int64 {
	n, _ := record[field].(float64)
	return int64(n)
}

// figure returns the number that a page shows by a pattern with one group.
func (p *pages) figure(page, pattern string) int64 {
	p.t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(page)
	if m == nil {
		p.t.Errorf("a page has no figure %s", pattern)
		return -1
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(html.UnescapeString(m[1]), ",", ""), 10, 64)
	if err != nil {
		p.t.Errorf("the figure %s: %v", pattern, err)
	}
	return n
}

// died adds up the tasks of all causes of death, in a list of causes or in a report of doctor.
func died(records []map[string]any) (tasks int64) {
	for _, record := range records {
		tasks += number(record, "tasks")
		findings, _ := record["findings"].([]any)
		for _, f := range findings {
			if finding, _ := f.(map[string]any); finding["code"] == "cause" {
				tasks += number(finding, "tasks")
			}
		}
	}
	return tasks
}

// TestEachFigureIsTheSameEverywhere compares each figure of the dashboard with that of the command, on a night with
// dead tasks, a paused queue and a history.
func TestEachFigureIsTheSameEverywhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := openPages(t, "night")
		same := func(what string, page, command int64) {
			if page != command {
				t.Errorf("%s: the dashboard shows %d, the command %d", what, page, command)
			}
		}
		overview, sums := p.get("/"), map[string]int64{}
		for _, q := range p.jsonl("queue ls") {
			name, _ := q["queue"].(string)
			page := p.get("/queues/" + name)
			for _, state := range storage.States()[:7] {
				n := number(q, string(state))
				sums[string(state)] += n
				key := regexp.QuoteMeta("q." + name + ":" + string(state))
				same(name+" "+string(state), p.figure(page, `data-v="`+key+`" title="([0-9,]*)`), n)
			}
			same(name+" runners", p.figure(page, `data-v="q.`+name+`:runners">([^<]*)<`), number(q, "runners"))
		}
		stats := p.jsonl("stats")[0]
		for state, n := range sums {
			same("all "+state, number(stats, state), n)
		}
		same("dead in the navigation", p.figure(overview, `data-v="all.dead"[^>]*>([^<]*)<`), sums["dead"])
		same("dead on their page", p.figure(p.get("/dead"), `data-part="counted">([\d,]+)`), sums["dead"])
		for _, line := range []string{"task ls --by cause", "doctor"} {
			same("dead by cause, by "+line, sums["dead"], died(p.jsonl(line)))
		}
		metrics := p.get("/metrics?span=24h")
		for _, past := range p.jsonl("history --span 24h") {
			name, _ := past["queue"].(string)
			row := regexp.MustCompile(`(?s)queue=` + name + `&amp;span=24h".*?</tr>`).FindString(metrics)
			for field, label := range map[string]string{"enqueued": "enqueued", "done": "done", "failed": "failed", "dead": "died"} {
				same("the history of "+name+", "+field, p.figure(row, `data-l="`+label+`" title="([0-9,]*)`), number(past, field))
			}
		}
	})
}
