package sandbox

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == StageArgument {
		Stage()
	}
	os.Exit(m.Run())
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to make namespaces")
	}
}

// emptyNetNS gives the path of a new network namespace that lives as long as the test.
func emptyNetNS(t *testing.T) string {
	t.Helper()
	path, end := make(chan string), make(chan struct{})
	t.Cleanup(func() { close(end) })
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		path <- fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		<-end
	}()
	return <-path
}

func shell(t *testing.T, script string, change func(plan *Plan)) (string, int, error) {
	t.Helper()
	plan := &Plan{
		RootFS: &RootFS{At: t.TempDir()}, Hostname: "web-0", Argv: []string{"sh", "-c", script},
		Env: []string{"PATH=/usr/bin:/bin:/usr/sbin", "SECRET=x"}, Dir: "/",
	}
	if change != nil {
		change(plan)
	}
	var output bytes.Buffer
	process, err := Start(Where{NetNS: emptyNetNS(t)}, plan, Streams{Stdout: &output, Stderr: &output})
	if err != nil {
		return "", 0, err
	}
	code, err := process.Result()
	return strings.TrimSpace(output.String()), code, err
}

func TestContainer(t *testing.T) {
	needRoot(t)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "key"), []byte("from a volume"), 0o644); err != nil {
		t.Fatal(err)
	}
	volume := func(readOnly bool) func(*Plan) {
		return func(plan *Plan) {
			plan.RootFS.Binds = []Bind{{Source: folder, Target: "/var/run/volume", ReadOnly: readOnly}}
		}
	}
	for _, test := range []struct {
		name, script string
		change       func(*Plan)
		want         string
		code         int
	}{
		{name: "is process 1 under its own name", script: "echo $$ $(hostname)", want: "1 web-0"},
		{name: "ends with its code", script: "exit 7", code: 7},
		{name: "killed by a signal", script: "sh -c 'kill -KILL $$; true' 2>/dev/null", code: 137},
		{name: "sees a volume", script: "cat /run/volume/key", change: volume(false), want: "from a volume"},
		{name: "cannot write a read-only volume", script: "touch /run/volume/x 2>/dev/null || echo no", change: volume(true), want: "no"},
		{name: "writes its own root", script: "echo hi >/tmp/x; cat /tmp/x", want: "hi"},
		{name: "does not see the machine's files", script: "ls /work /farm /root/.cache 2>/dev/null; ls /etc/passwd", want: "/etc/passwd"},
		{
			name: "read-only root", script: "touch /tmp/x 2>/dev/null || echo no", want: "no",
			change: func(plan *Plan) { plan.RootFS.ReadOnly = true },
		},
		{name: "kernel settings are read-only", script: "echo 1 2>/dev/null >/proc/sys/net/ipv4/ip_forward || echo no", want: "no"},
		{
			name: "kernel settings of the network through a volume, with the right to", want: "1",
			script: "echo 1 >/host/net/ipv4/ip_forward; cat /proc/sys/net/ipv4/ip_forward",
			change: func(plan *Plan) {
				plan.Capabilities = 1 << 12
				plan.RootFS.Binds = []Bind{{Source: "/proc/sys/net", Target: "/host/net"}}
			},
		},
		{name: "no capabilities unless given", script: "grep CapEff /proc/self/status | tr -d '\\t'", want: "CapEff:0000000000000000"},
		{
			name: "some capabilities", script: "grep -E 'Cap(Eff|Bnd)' /proc/self/status | tr -d '\\t' | xargs",
			change: func(plan *Plan) { plan.Capabilities = 1<<12 | 1<<7 }, want: "CapEff:0000000000001080 CapBnd:0000000000001080",
		},
		{
			name: "another user holds none, as on a real node", script: "id -u; grep CapEff /proc/self/status | tr -d '\\t'",
			change: func(plan *Plan) { plan.UID, plan.GID, plan.Capabilities = 1000, 1000, 1<<12 },
			want:   "1000\nCapEff:0000000000000000",
		},
		{
			name: "no new privileges", script: "grep NoNewPrivs /proc/self/status | tr -d '\\t'", want: "NoNewPrivs:1",
			change: func(plan *Plan) { plan.NoNewPrivs = true },
		},
		{name: "devices", script: "ls /dev | xargs", want: "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, code, err := shell(t, test.script, test.change)
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want || code != test.code {
				t.Errorf("got %q and code %d, want %q and code %d", got, code, test.want, test.code)
			}
		})
	}
}

func TestMissingProgram(t *testing.T) {
	needRoot(t)
	_, _, err := shell(t, "", func(plan *Plan) { plan.Argv = []string{"no-such-program"} })
	if err == nil || !strings.Contains(err.Error(), "executable file not found in $PATH") {
		t.Errorf("got %v", err)
	}
}

// startSleeper gives a container that has made its file /tmp/mark and sleeps.
func startSleeper(t *testing.T) (*Process, *Plan) {
	t.Helper()
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	defer input.Close()
	plan := &Plan{
		RootFS: &RootFS{At: t.TempDir()}, Hostname: "web-0", Argv: []string{"sh", "-c", "echo inside >/tmp/mark; echo marked; sleep 1000 & wait"},
		Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/",
	}
	process, err := Start(Where{}, plan, Streams{Stdout: input})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Signal(syscall.SIGKILL)
		<-process.Done()
	})
	// A shell that has been reached by exec has not run its first line yet.
	if err := output.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "marked\n" {
		t.Fatalf("the sleeper said %q, %v", line, err)
	}
	return process, plan
}

func TestJoin(t *testing.T) {
	needRoot(t)
	process, plan := startSleeper(t)
	further := *plan
	further.RootFS, further.Argv = nil, []string{"sh", "-c", "cat /tmp/mark; hostname; cat; tty"}
	var output bytes.Buffer
	inside, err := Start(Where{Join: process.PID}, &further, Streams{Stdin: strings.NewReader("stdin\n"), Stdout: &output, Stderr: &output})
	if err != nil {
		t.Fatal(err)
	}
	if code, err := inside.Result(); code != 1 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	if want := "inside\nweb-0\nstdin\nnot a tty\n"; output.String() != want {
		t.Errorf("got %q, want %q", output.String(), want)
	}
}

func TestTerminal(t *testing.T) {
	needRoot(t)
	process, plan := startSleeper(t)
	ours, theirs, err := OpenTerminal()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if err := Resize(ours, 40, 100); err != nil {
		t.Fatal(err)
	}
	further := *plan
	further.RootFS, further.Argv = nil, []string{"sh", "-c", "stty size; test -t 0 && echo yes"}
	inside, err := Start(Where{Join: process.PID}, &further, Streams{TTY: theirs})
	if err != nil {
		t.Fatal(err)
	}
	if code, err := inside.Result(); code != 0 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	output, _ := io.ReadAll(ours)
	if want := "40 100\r\nyes\r\n"; string(output) != want {
		t.Errorf("got %q, want %q", output, want)
	}
}

func TestEndTakesAllAlong(t *testing.T) {
	needRoot(t)
	process, _ := startSleeper(t)
	process.Signal(syscall.SIGKILL)
	select {
	case <-process.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("still there")
	}
	if code, _ := process.Result(); code != 137 {
		t.Errorf("code %d", code)
	}
}
