package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/examples/internal/store"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/midgetest"
	"github.com/midgehq/midge/storage"
)

func TestWhatWasAcceptedIsDoneBeforeTheEnd(t *testing.T) {
	opened, err := store.Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, terminate := context.WithCancel(t.Context())
	defer terminate()
	ended := make(chan error, 1)
	core, logs := observer.New(zap.InfoLevel)
	go func() { ended <- run(ctx, opened, listener, zap.New(core)) }()

	base := "http://" + listener.Addr().String()
	ann := welcome(t, base, "ann")
	if again := welcome(t, base, "ann"); again != ann {
		t.Errorf("a second click got task %s, want %s", again, ann)
	}
	text, err := request(ctx, http.MethodGet, base+"/tasks/"+ann, nil)
	if err != nil || !strings.Contains(text, `"waiting"`) && !strings.Contains(text, `"pending"`) {
		t.Errorf("got %s, %v; want the state of the task", text, err)
	}
	queue, id, _ := strings.Cut(ann, "/")
	testserver.Await(t, "the mail is on its way: a task that is only claimed is released by a drain", func() bool {
		return logs.FilterMessage("mail: connecting, to welcome ann").Len() > 0
	})
	terminate()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	task, err := opened.Task(t.Context(), storage.Ref{Queue: queue, ID: id})
	if err != nil || task.State != storage.Completed {
		t.Errorf("after the drain %s is %s, %v, want completed", ann, task.State, err)
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
}

func TestAnswersSayWhatWentWrong(t *testing.T) {
	opened, err := store.Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	client, err := midge.NewClient(opened, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler(client))
	defer server.Close()
	for path, want := range map[string]string{"/tasks/mail/none": "404", "/tasks/mail/n%20": "400"} {
		_, err := request(t.Context(), http.MethodGet, server.URL+path, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("GET %s: got %v, want %s", path, err, want)
		}
	}
	if err := opened.Close(); err != nil { // make the storage unavailable
		t.Error(err)
	}
	_, err = request(t.Context(), http.MethodPost, server.URL+"/welcome", url.Values{"to": {"ann"}})
	if err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("POST /welcome without a storage: got %v, want 503", err)
	}
}

// TestTwoClicksAreOneWelcome checks the tasks that the handler enqueues, and makes one attempt of the task.
func TestTwoClicksAreOneWelcome(t *testing.T) {
	mailer := &mailer{log: zap.NewNop()}
	k := midgetest.New(t, midgetest.Config{
		Register: func(r *midge.Runner) error { return midge.Handle(r, mailer.send) },
	})
	server := httptest.NewServer(handler(k.Client()))
	defer server.Close()
	welcome(t, server.URL, "bob")
	welcome(t, server.URL, "bob")
	task := midgetest.RequireEnqueued[Welcome](t, k.Client(),
		midgetest.Params(Welcome{To: "bob"}), midgetest.With(midge.To("mail")))
	if sent := k.WorkTask(task.Ref); sent.Outcome != midge.OutcomeSucceeded {
		t.Errorf("it %s: %v", sent.Outcome, sent.Err)
	}
}

// welcome posts a welcome and returns the task.
func welcome(t *testing.T, base, to string) string {
	t.Helper()
	text, err := request(t.Context(), http.MethodPost, base+"/welcome", url.Values{"to": {to}})
	if err != nil {
		t.Fatal(err)
	}
	var accepted accepted
	if err := json.Unmarshal([]byte(text), &accepted); err != nil {
		t.Fatal(err)
	}
	return accepted.Task
}
