package dashboard

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// limitView is the limit of a queue as its page shows it.
type limitView struct {
	Text     string    // the limit in force, "none" if an operator has lifted the declared one
	At       bool      // it admits no other start now
	Run      string    // "50 of 50 run"
	Starts   string    // "73 of 100 starts count"
	Next     time.Time // when the rate admits another start, zero for now
	Operator bool      // an operator has set it
	Declared string    // the limit that programs declare, if the limit of an operator stands above it
	// Forgotten is set if no live runner declares what a program has declared.
	Forgotten bool
}

// Limit returns the limit of a queue, nil for none.
func (v *view) Limit(q queueView) *limitView {
	l := q.sampledQueue.Limit
	if l == nil {
		return nil
	}
	in := l.InForce()
	lv := &limitView{
		Text: words.Limit(in), At: survey.AtLimit(&q.Stats), Next: l.Next, Operator: l.Operator != nil,
		Forgotten: l.Forgotten(q.Queue, v.Sample.Runners),
	}
	if in.Concurrency > 0 {
		lv.Run = format.Number(q.Pending) + " of " + format.Number(int64(in.Concurrency)) + " run"
	}
	if in.Rate.N > 0 {
		lv.Starts = format.Number(l.Started) + " of " + format.Count(int64(in.Rate.N), "start") + " used"
	}
	if l.Operator != nil && l.Declared != nil {
		lv.Declared = words.Limit(l.Declared.Limit)
	}
	return lv
}

// Clears reports whether a clearing of the limit changes anything.
func (l *limitView) Clears() bool { return l.Operator || l.Forgotten }

// AtLimit returns how the limit of a queue keeps its tasks waiting, "" if it does not.
func (q queueView) AtLimit() string {
	if !q.KeptWaiting() {
		return ""
	}
	return "The limit keeps the tasks waiting: " + words.Limit(q.sampledQueue.Limit.InForce()) + "."
}

// askLimit completes the dialog before the limit of a queue is set or cleared.
func askLimit(v *view, d *askData, q *survey.Queue) {
	if d.Do == "limit" {
		in := q.Limit.InForce()
		d.Limit = &limitFields{
			Queue:     boundFieldsOf(in.Concurrency, in.Rate),
			Partition: boundFieldsOf(in.Partition.Concurrency, in.Partition.Rate),
			Weight:    boundFieldsOf(in.Partition.Weight, storage.Rate{}).Concurrency,
		}
		d.Command = commandLine("midge", "queue", "limit", d.Queue)
		return
	}
	d.Title = "Clear the limit of the queue " + d.Queue + "?"
	d.Command = commandLine("midge", "queue", "limit", "--clear", d.Queue)
	if l := q.Limit; l != nil && l.Declared != nil && !l.Forgotten(q.Queue, v.Sample.Runners) {
		d.Says += " Programs declare " + words.Limit(l.Declared.Limit) + "."
		return
	}
	d.Says += " Programs declare none."
}

// limitFields are the fields of the dialog that sets a limit.
type limitFields struct {
	Queue, Partition boundFields
	Weight           string
}

// boundFields are the fields of the bounds of a queue, or of each of its partitions.
type boundFields struct{ Concurrency, Rate string }

func boundFieldsOf(concurrency int, r storage.Rate) (f boundFields) {
	if concurrency > 0 {
		f.Concurrency = strconv.Itoa(concurrency)
	}
	if r.N > 0 {
		f.Rate = rateText(r)
	}
	return f
}

// rateText returns the text of a rate as the dialog takes it, such as "100/1m".
func rateText(r storage.Rate) string {
	text := fmt.Sprintf("%d/%v", r.N, r.Per)
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// askedLimit reads the limit of a form. A bound that is empty is none.
func askedLimit(r *http.Request) (l storage.Limit, err error) {
	if l.Concurrency, l.Rate, err = askedBounds(r, ""); err == nil {
		l.Partition.Concurrency, l.Partition.Rate, err = askedBounds(r, "partition_")
	}
	if err == nil {
		l.Partition.Weight, err = askedNumber(r, "partition_weight", storage.MaxWeight)
	}
	return l, err
}

// askedNumber reads a field with a number, from 1 to most, of a form. An empty field is 0.
func askedNumber(r *http.Request, name string, most int) (n int, err error) {
	text := strings.TrimSpace(r.PostFormValue(name))
	if text == "" {
		return 0, nil
	}
	if n, err = strconv.Atoi(text); err != nil || n < 1 || n > most {
		return 0, storage.Invalid(name, text, "1 to %d, or nothing", most)
	}
	return n, nil
}

// askedBounds reads the bounds of a queue, or of each of its partitions, from the fields whose names begin
// with a prefix.
func askedBounds(r *http.Request, prefix string) (concurrency int, rate storage.Rate, err error) {
	if concurrency, err = askedNumber(r, prefix+"concurrency", storage.MaxLimitConcurrency); err != nil {
		return 0, rate, err
	}
	if text := strings.TrimSpace(r.PostFormValue(prefix + "rate")); text != "" {
		rate, err = filter.ParseRate(prefix+"rate", text)
	}
	return concurrency, rate, err
}
