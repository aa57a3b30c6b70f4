package prometheus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/metrics/prometheus"
	"github.com/midgehq/midge/storage/memory"
)

// program finds a program of Prometheus, which tools/need-prometheus.sh downloads. The test is
// skipped unless MIDGE_TEST_SERVERS shows that tests run with real servers.
func program(t *testing.T, name string) string {
	t.Helper()
	if v := os.Getenv("MIDGE_TEST_SERVERS"); v == "" || v == "0" {
		t.Skip("needs a real Prometheus: set MIDGE_TEST_SERVERS=1, or run make test")
	}
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", "prometheus", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v; tools/need-prometheus.sh brings it", err)
	}
	return path
}

func TestTheAlertRulesHold(t *testing.T) {
	promtool := program(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "alerts.yml"},
		{"test", "rules", "alerts_test.yml"},
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// server is a Prometheus that scrapes one address.
type server struct {
	*testing.T
	address string
}

// scraping starts a Prometheus on a free port. It ends with the test.
func scraping(t *testing.T, target string) *server {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	rules, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("global: {scrape_interval: 200ms, evaluation_interval: 1s}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: shop, static_configs: [{targets: [%q]}]}]\n", rules, target)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t, listener.Addr().String()}
	_ = listener.Close()
	cmd := exec.CommandContext(t.Context(), program(t, "prometheus"), "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+s.address)
	log := &strings.Builder{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log)
		}
	})
	return s
}

// get reads from the server. It returns nil if the server does not answer.
func (s *server) get(path string, query url.Values) []byte {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet,
		"http://"+s.address+path+"?"+query.Encode(), nil)
	if err != nil {
		s.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	var body json.RawMessage
	if json.NewDecoder(response.Body).Decode(&body) != nil {
		return nil
	}
	return body
}

// ask returns the value of each series of an expression.
func (s *server) ask(expression string) (values []string) {
	s.Helper()
	var answer struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	body := s.get("/api/v1/query", url.Values{"query": {expression}})
	if body == nil {
		return nil
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		s.Fatalf("%s: %s, %v", expression, body, err)
	}
	for _, series := range answer.Data.Result {
		values = append(values, fmt.Sprint(series.Value[1]))
	}
	return values
}

// await asks until an expression has a series with the value; "" means any value.
func (s *server) await(expression, value string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		values := s.ask(expression)
		if len(values) > 0 && (value == "" || values[0] == value) {
			return
		}
		select {
		case <-ctx.Done():
			s.Fatalf("%s: got %v, want %q", expression, values, value)
		case <-tick.C:
		}
	}
}

// board returns the expressions of the Grafana board.
func board(t *testing.T) (expressions []string) {
	t.Helper()
	text, err := os.ReadFile("grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var b struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	for _, panel := range b.Panels {
		for _, target := range panel.Targets {
			expressions = append(expressions, strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"))
		}
	}
	if len(expressions) < 8 {
		t.Fatalf("the board has %d expressions, want 8 and more", len(expressions))
	}
	return expressions
}

// A Prometheus scrapes an application: its counts match the run of the application, its rules load,
// and each expression of the board has a series.
func TestAPrometheusScrapesAnApplication(t *testing.T) {
	program(t, "prometheus")
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := prometheus.New(store, prometheus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	shop := httptest.NewServer(metrics.Handler())
	defer shop.Close()
	s := scraping(t, strings.TrimPrefix(shop.URL, "http://"))

	client, err := midge.NewClient(store, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var cfg midge.RunnerConfig
	metrics.Runner(&cfg)
	runner, err := midge.NewRunner(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := midge.Register[work](runner); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	s.await("midge_runners", "1")
	for _, name := range []string{"succeeded", "succeeded", "succeeded", "failed", "discarded"} {
		if _, err := client.Enqueue(t.Context(), work{name}, midge.Retries(midge.None)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Enqueue(t.Context(), strange{}); err != nil {
		t.Fatal(err)
	}
	s.await(`midge_attempts_total{outcome="succeeded",kind="work",queue="default"}`, "3")
	s.await(`midge_attempts_total{outcome="failed"}`, "1")
	s.await(`midge_queue_events_total{event="enqueued"}`, "6")
	s.await(`midge_tasks{state="dead"}`, "2")
	s.await("midge_tasks_declined", "1")
	for _, expression := range board(t) {
		s.await(expression, "")
	}
	var loaded struct {
		Data struct {
			Groups []struct{ Rules []struct{ Health string } }
		}
	}
	if err := json.Unmarshal(s.get("/api/v1/rules", nil), &loaded); err != nil || len(loaded.Data.Groups) != 1 {
		t.Errorf("rules: got %+v, %v, want one group", loaded, err)
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.await("midge_runners", "0")
}
