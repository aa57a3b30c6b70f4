package testserver

import "testing"

func TestPostgresOutlivesKillAndRestart(t *testing.T) {
	RequirePostgres(t)
	server := Postgres(t, PostgresOptions{})
	must(t, server.Exec(t.Context(), "CREATE TABLE a (b int)"))
	pid := server.Pid()
	must(t, server.Kill())
	must(t, server.Kill())
	if err := server.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Fatal("a killed server answers")
	}
	must(t, server.Restart())
	must(t, server.Exec(t.Context(), "SELECT b FROM a"))
	must(t, server.Restart())
	must(t, server.Exec(t.Context(), "SELECT b FROM a"))
	if server.Pid() == pid {
		t.Errorf("restarted as %d, want another process", pid)
	}
}

func TestPostgresOptions(t *testing.T) {
	RequirePostgres(t)
	server := Postgres(t, PostgresOptions{Unsafe: true, Config: []string{"work_mem = '7MB'"}})
	for _, check := range []string{
		"SELECT 1 / (current_setting('fsync') = 'off')::int",
		"SELECT 1 / (current_setting('work_mem') = '7MB')::int",
	} {
		must(t, server.Exec(t.Context(), check))
	}
}
