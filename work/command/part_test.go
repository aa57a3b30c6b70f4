//go:build linux || darwin

package command_test

import (
	"context"
	"os"
	"strconv"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/work/command"
)

// The environment of a worker process of a test.
const (
	envScript = "COMMAND_TEST_SCRIPT"
	envTasks  = "COMMAND_TEST_TASKS"
)

// workerMain runs a script for some tasks, and prints the mark of its processes once all of them run.
func workerMain() {
	tasks, _ := strconv.Atoi(os.Getenv(envTasks))
	store, err := memory.Open(memory.Config{})
	must(err)
	runner, err := midge.NewRunner(store, midge.RunnerConfig{Queues: []string{"films"}, Concurrency: tasks})
	must(err)
	cfg := shell(os.Getenv(envScript))
	must(command.Handle(runner, "packed", cfg))
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	for range tasks {
		_, err := client.Enqueue(context.Background(), packed{})
		must(err)
	}
	must(runner.Run(context.Background()))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
