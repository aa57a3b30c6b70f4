package main

import (
	"fmt"
	"strconv"
	"strings"
)

// row is how many tasks of a kind are in which state. The tasks are numbered in the order of the fields.
type row struct {
	Queue     string `json:"queue"`
	Kind      string `json:"kind"`
	Completed int    `json:"completed"`
	Retry     int    `json:"retry"`
	Dead      int    `json:"dead"`
	Running   int    `json:"running"`
	Waiting   int    `json:"waiting"`
	Scheduled int    `json:"scheduled"`
	Paused    bool   `json:"paused"` // the queue
	Error     string `json:"error"`  // of those in Retry and Dead; %d is the task's number
}

// rowsOf gives what the scene of this name has at its end, in the same numbers as internal/scene.
func rowsOf(name string) ([]row, error) {
	const (
		bank = "the bank answers 503 Service Unavailable"
		smtp = "send to smtp: dial tcp 10.0.4.17:25: connect: connection refused"
		disk = "write /var/exports/%d.csv: no space left on device"
	)
	switch name {
	case "calm":
		return []row{
			{Queue: "default", Kind: "clean_up", Scheduled: 3},
			{Queue: "exports", Kind: "build_export", Running: 4, Waiting: 2},
			{Queue: "images", Kind: "resize_image", Completed: 1190, Waiting: 10},
			{Queue: "mail", Kind: "send_welcome", Completed: 400, Waiting: 20},
			{Queue: "payments", Kind: "charge_card", Completed: 76, Retry: 4, Error: bank},
			{Queue: "webhooks", Kind: "deliver_webhook", Completed: 255, Waiting: 5},
		}, nil
	case "night":
		return []row{
			{Queue: "archive", Kind: "archive_orders", Dead: 88, Error: disk},
			{Queue: "default", Kind: "clean_up", Scheduled: 3},
			{Queue: "default", Kind: "legacy_sync", Retry: 1, Error: `no handler for "legacy_sync"`},
			{Queue: "exports", Kind: "build_export", Running: 4},
			{Queue: "images", Kind: "resize_image", Completed: 1200},
			{Queue: "mail", Kind: "send_welcome", Completed: 420, Waiting: 9},
			{Queue: "mail", Kind: "send_invoice", Dead: 180, Error: smtp},
			{Queue: "mail", Kind: "send_digest", Dead: 32, Error: smtp},
			{
				Queue: "payments", Kind: "charge_card", Completed: 76, Retry: 4, Waiting: 1204, Paused: true,
				Error: bank,
			},
			{Queue: "webhooks", Kind: "deliver_webhook", Completed: 260},
		}, nil
	default:
		return nil, fmt.Errorf("scene %q: want calm or night", name)
	}
}

// begun is how many tasks of a row are tried.
func (r row) begun() int { return r.Completed + r.Retry + r.Dead + r.Running }

// last reports whether a task's first failure is its last.
func (r row) last(i int) bool { return i >= r.Completed+r.Retry }

// runs reports whether a task runs for good.
func (r row) runs(i int) bool { return i >= r.Completed+r.Retry+r.Dead }

// failure is the text with which a task fails; a task without one completes.
func (r row) failure(i int) string {
	if i < r.Completed {
		return ""
	}
	return strings.ReplaceAll(r.Error, "%d", strconv.Itoa(1000+i))
}

// params are those of a task.
type params struct {
	User int    `json:"user"`
	Mail string `json:"mail"`
}

func paramsOf(i int) params { return params{i, fmt.Sprintf("user%d@example.com", i)} }

// find gives the row of a kind.
func find(rows []row, kind string) row {
	for _, r := range rows {
		if r.Kind == kind {
			return r
		}
	}
	return row{Kind: kind}
}

// schedules are the periodic ones of both scenes. Of the peers asynq and BullMQ have some, and neither can
// tell that nobody declares one any more.
var schedules = []struct{ Queue, Kind, Spec string }{
	{"default", "nightly_report", "0 3 * * *"},
	{"default", "clean_up", "0 * * * *"},
	{"exports", "weekly_export", "30 6 * * 1"},
}
