package main

import (
	"fmt"
	"strconv"
	"strings"
)

// row has the numbers of tasks of a kind in each state. The tasks are numbered in the order of the fields.
type row struct {
	Queue     string `json:"queue"`
	Kind      string `json:"kind"`
	Completed int    `json:"completed"`
	Retry     int    `json:"retry"`
	Dead      int    `json:"dead"`
	Running   int    `json:"running"`
	Waiting   int    `json:"waiting"`
	Scheduled int    `json:"scheduled"`
	Paused    bool   `json:"paused"` // whether the queue is paused
	Error     string `json:"error"`  // the error of the tasks in Retry and Dead; %d is the task's number
}

// rowsOf returns the tasks at the end of the scene with this name. The numbers are those of internal/scene.
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

// begun returns how many tasks of the row are run at least once.
func (r row) begun() int { return r.Completed + r.Retry + r.Dead + r.Running }

// last reports whether the task with a number has only one attempt.
func (r row) last(i int) bool { return i >= r.Completed+r.Retry }

// runs reports whether the task with a number runs until the program ends.
func (r row) runs(i int) bool { return i >= r.Completed+r.Retry+r.Dead }

// failure returns the error with which the task with a number fails, and "" for a task that completes.
func (r row) failure(i int) string {
	if i < r.Completed {
		return ""
	}
	return strings.ReplaceAll(r.Error, "%d", strconv.Itoa(1000+i))
}

// params are the parameters of a task.
type params struct {
	User int    `json:"user"`
	Mail string `json:"mail"`
}

func paramsOf(i int) params { return params{i, fmt.Sprintf("user%d@example.com", i)} }

// find returns the row of a kind.
func find(rows []row, kind string) row {
	for _, r := range rows {
		if r.Kind == kind {
			return r
		}
	}
	return row{Kind: kind}
}

// schedules are the schedules of both scenes. Of the peers, only asynq and BullMQ have schedules. Neither can
// show that no program declares a schedule any more.
var schedules = []struct{ Queue, Kind, Spec string }{
	{"default", "nightly_report", "0 3 * * *"},
	{"default", "clean_up", "0 * * * *"},
	{"exports", "weekly_export", "30 6 * * 1"},
}
