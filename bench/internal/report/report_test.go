package report

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 2, 9}, 3},
	} {
		if got := Median(c.values); got != c.want {
			t.Errorf("median of %v = %v, want %v", c.values, got, c.want)
		}
	}
}

func TestMediansKeepTheOrder(t *testing.T) {
	var r Results
	for _, v := range []float64{3, 1, 2} {
		r.Add("midge", "redis", "mixed", v)
		r.Add("asynq", "redis", "mixed", 10*v)
	}
	r.Add("midge", "redis", "depth", 0.9)
	var text strings.Builder
	if err := JSON(&text, r.Medians()); err != nil {
		t.Fatal(err)
	}
	want := `{"system":"midge","storage":"redis","metric":"mixed","value":2,"unit":"jobs/s"}
{"system":"asynq","storage":"redis","metric":"mixed","value":20,"unit":"jobs/s"}
{"system":"midge","storage":"redis","metric":"depth","value":0.9,"unit":"ratio"}
`
	if text.String() != want {
		t.Errorf("the lines are\n%s want\n%s", text.String(), want)
	}
	if v, ok := r.Median("asynq", "redis", "mixed"); v != 20 || !ok {
		t.Errorf("the median of asynq is %v, %t, want 20", v, ok)
	}
	if _, ok := r.Median("asynq", "redis", "depth"); ok {
		t.Error("there is a median of what was not measured")
	}
}

func TestJSONIsOneObjectALine(t *testing.T) {
	var text strings.Builder
	results := []Result{{System: "midge", Storage: "redis", Metric: "depth", Value: 1, Unit: "ratio"}, {}}
	if err := JSON(&text, results); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		fields := map[string]any{}
		if err := json.Unmarshal([]byte(line), &fields); err != nil || len(fields) != 5 {
			t.Errorf("%q has %d fields, %v, want 5", line, len(fields), err)
		}
	}
}

func TestUnit(t *testing.T) {
	for metric, want := range map[string]string{
		"drain_c100": "jobs/s", "drain_c100_srvcpu": "µs/job", "drain_c100_cmds": "per job",
		"idle_cmds": "per s", "latency_idle_p50": "ms", "ping_p999": "ms", "slowlog": "scripts",
		"slowlog_max": "ms", "mem_per_job": "B", "mem_per_partition": "B", "mem_in_partition": "B", "depth": "ratio", "enqueue_p1": "jobs/s",
	} {
		if got := Unit(metric); got != want {
			t.Errorf("unit of %s = %q, want %q", metric, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for want, v := range map[string]float64{
		"0": 0, "0.014": 0.0137, "0.12": 0.12, "1.5": 1.5, "20": 20, "5.48": 5.48, "643.8": 643.8,
		"1,000": 1000, "1,234,568": 1_234_567.8, "99,999": 99_999,
	} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestTableComparesAndJudges(t *testing.T) {
	var r Results
	r.Add("midge", "redis", "drain_c100", 300_000)
	r.Add("asynq", "redis", "drain_c100", 10_000)
	r.Add("midge", "redis", "drain_q20", 200_000)
	r.Add("midge", "redis", "mem_per_job", 340)
	r.Add("asynq", "redis", "latency_idle_p50", 500)
	r.Add("midge", "memory", "drain_c100", 900_000)
	r.Add("midge", "redis-everysec", "drain_c100", 1)
	r.Add("midge", "postgres", "drain_c10", 30_000)
	r.Add("river", "postgres", "drain_c10", 100)
	r.Add("river-tuned", "postgres", "drain_c10", 2500)
	r.Add("midge", "postgres", "depth", 1)
	r.Add("river", "postgres", "depth", 0.5)
	var text strings.Builder
	if err := Table(&text, r.Medians()); err != nil {
		t.Fatal(err)
	}
	want := `
| storage        | metric           | unit   |   midge |  asynq | river | river-tuned | midge ÷ peer |         midge must | met |
| -------------- | ---------------- | ------ | ------: | -----: | ----: | ----------: | -----------: | -----------------: | --: |
| redis          | drain_c100       | jobs/s | 300,000 | 10,000 |     – |           – |           30 |       ≥ 20 × asynq | yes |
| redis          | drain_q20        | jobs/s | 200,000 |      – |     – |           – |            – | ≥ 0.8 × drain_c100 |  no |
| redis          | mem_per_job      | B      |     340 |      – |     – |           – |            – |      ≤ 0.6 × asynq |   – |
| redis          | latency_idle_p50 | ms     |       – |    500 |     – |           – |            – |              ≤ 0.4 |   – |
| memory         | drain_c100       | jobs/s | 900,000 |      – |     – |           – |            – |          ≥ 800,000 | yes |
| redis-everysec | drain_c100       | jobs/s |       1 |      – |     – |           – |            – |                  – |   – |
| postgres       | drain_c10        | jobs/s |  30,000 |      – |   100 |       2,500 |           12 | ≥ 15 × river-tuned |  no |
| postgres       | depth            | ratio  |       1 |      – |   0.5 |           – |            2 |             ≥ 0.95 | yes |
`
	if "\n"+text.String() != want {
		t.Errorf("the table is\n%s\nwant%s", text.String(), want)
	}
}
