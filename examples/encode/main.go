// Encode compresses a folder of files through a program, one task per file. The worker knows nothing of the
// work: it starts the program for each task, passes the parameters on, and stores the progress and the
// result that the program reports. Any program in any language can take its place; here it is this program
// itself, started with the word "compress", so that the example needs nothing but Go.
//
// You will see eight files compressed, two at a time, and the progress of each. The last file is not
// readable as text. The program reports that with exit code 65, and its task is dead without a retry.
//
//	go run ./examples/encode
//	go run ./examples/encode -dashboard 127.0.0.1:8383 -pace 1s
//	go run ./examples/encode -redis redis://localhost:6379
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/examples/internal/store"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/work/command"
)

const queue = "files"

// Compress is a job of the kind "compress". The program reads its parameters as JSON, so its fields are
// those of the program too.
type Compress struct {
	From, To string
	Pace     time.Duration // time per part of the file, so that there is something to see
}

// Options keeps the completed tasks for people who look at them.
func (Compress) Options() midge.Options {
	return midge.Options{Queue: queue, Retries: 3, Keep: midge.Keep{For: time.Minute}}
}

func main() {
	reaper := command.Main() // before everything else
	if err := start(reaper); err != nil {
		fmt.Fprintln(os.Stderr, "encode:", err)
		os.Exit(exitCode(err))
	}
}

func start(reaper *command.Reaper) error {
	url := store.Flag()
	pace := flag.Duration("pace", 50*time.Millisecond, "`time` per part of a file")
	address := flag.String("dashboard", "", "serve the dashboard at this `address`")
	flag.Parse()
	if flag.Arg(0) == "compress" {
		return compress(os.Stdin, os.NewFile(3, "reports"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	opened, err := store.Open(ctx, *url)
	if err != nil {
		return err
	}
	if *address != "" {
		go func() { _ = serve(*address, opened) }() // ends with the program
	}
	return errors.Join(run(ctx, opened, reaper, *pace, os.Stdout), opened.Close())
}

// serve serves the dashboard.
func serve(address string, opened storage.Storage) error {
	token := rand.Text()
	board, err := dashboard.Handler(opened, dashboard.Config{Token: token})
	if err != nil {
		return err
	}
	fmt.Printf("dashboard: http://%s/login?token=%s\n", address, token)
	server := http.Server{Addr: address, Handler: board, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

// run compresses the files of a new folder, and prints the story on out.
func run(
	ctx context.Context, opened storage.Storage, reaper *command.Reaper, pace time.Duration, out io.Writer,
) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runner, err := midge.NewRunner(opened, midge.RunnerConfig{Queues: []string{queue}, Concurrency: 2})
	if err != nil {
		return err
	}
	program := command.Config{Path: self, Args: []string{"compress"}, Reaper: reaper}
	if err := command.Handle(runner, "compress", program); err != nil {
		return err
	}
	client, err := midge.NewClient(opened, midge.ClientConfig{})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(running) }()

	told := compressAll(ctx, client, pace, out)
	stop()
	return errors.Join(told, <-ended, client.Queue(queue).Remove(context.WithoutCancel(ctx)))
}

// compressAll makes a folder of files, enqueues a task for each, and watches them.
func compressAll(ctx context.Context, client *midge.Client, pace time.Duration, out io.Writer) error {
	folder, err := os.MkdirTemp("", "encode-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	var refs []midge.Ref
	for i := range 8 {
		from := filepath.Join(folder, fmt.Sprintf("chapter-%d.txt", i+1))
		text := strings.Repeat(fmt.Sprintf("Chapter %d tells a long story.\n", i+1), 4000)
		if i == 7 {
			text = "\xff" + text
		}
		if err := os.WriteFile(from, []byte(text), 0o600); err != nil {
			return err
		}
		task, err := client.Enqueue(ctx, Compress{From: from, To: from + ".gz", Pace: pace})
		if err != nil {
			return err
		}
		refs = append(refs, task.Ref)
	}
	for i, ref := range refs {
		if err := watch(ctx, client, ref, fmt.Sprintf("chapter-%d.txt", i+1), out); err != nil {
			return err
		}
	}
	return nil
}

// watch prints the progress of a task, and how it ended.
func watch(ctx context.Context, client *midge.Client, ref midge.Ref, name string, out io.Writer) error {
	ended := make(chan error, 1)
	var size struct {
		Bytes int64 `msgpack:"bytes"` // as the program names it
	}
	go func() { ended <- client.Await(ctx, ref, &size) }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			task, err := client.Task(ctx, ref)
			if err == nil && task.State == storage.Pending {
				_, _ = fmt.Fprintf(out, "%s: %s\n", name, task.Progress)
			}
		case err := <-ended:
			if dead, ok := errors.AsType[*midge.DeadError](err); ok {
				_, _ = fmt.Fprintf(out, "%s is dead, %s: %s\n", name, dead.Reason, dead.Last)
				return nil
			}
			if err == nil {
				_, _ = fmt.Fprintf(out, "%s is compressed to %d bytes\n", name, size.Bytes)
			}
			return err
		}
	}
}
