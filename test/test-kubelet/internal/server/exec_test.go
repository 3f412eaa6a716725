package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"sealane.io/test-kubelet/internal/kubelet"
)

// echoNode answers a command by itself: "echo", "fail" or "hang". The last one says that it has begun.
type echoNode struct {
	fixedNode
	ended chan struct{}
}

func (node echoNode) Exec(ctx context.Context, command kubelet.Command) (int, error) {
	switch command.Argv[0] {
	case "echo":
		text, _ := io.ReadAll(command.Stdin)
		fmt.Fprintf(command.Stdout, "%s tty=%v stderr=%v", text, command.TTY, command.Stderr != nil)
		return 0, nil
	case "hang":
		fmt.Fprint(command.Stdout, "began")
		<-ctx.Done()
		close(node.ended)
		return 0, ctx.Err()
	}
	return 7, nil
}

func stream(ctx context.Context, t *testing.T, node Node, protocol, query string, options remotecommand.StreamOptions) error {
	t.Helper()
	server := httptest.NewServer(Handler(node))
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL + "/exec/shop/web/main?" + query)
	if err != nil {
		t.Fatal(err)
	}
	var executor remotecommand.Executor
	if protocol == "spdy" {
		executor, err = remotecommand.NewSPDYExecutor(&rest.Config{}, "POST", target)
	} else {
		executor, err = remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{}, "GET", target.String(), "v4.channel.k8s.io")
	}
	if err != nil {
		t.Fatal(err)
	}
	return executor.StreamWithContext(ctx, options)
}

func TestExec(t *testing.T) {
	for _, test := range []struct {
		name, query string
		tty, stderr bool
		want        string
	}{
		{"both outputs", "command=echo&input=1&output=1&error=1", false, true, "in tty=false stderr=true"},
		{"a terminal", "command=echo&input=1&output=1&tty=1", true, false, "in tty=true stderr=false"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			options := remotecommand.StreamOptions{Stdin: strings.NewReader("in"), Stdout: &stdout, Tty: test.tty}
			if test.stderr {
				options.Stderr = &stderr
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := stream(ctx, t, echoNode{}, "spdy", test.query, options); err != nil {
				t.Fatal(err)
			}
			if stdout.String() != test.want {
				t.Errorf("got %q, want %q", stdout.String(), test.want)
			}
		})
	}
}

// The conformance suite asks for a terminal and opens stdout and stderr, but no resize stream.
func TestExecWithoutResizeStream(t *testing.T) {
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	err := stream(ctx, t, echoNode{}, "spdy", "command=fail&output=1&error=1&tty=1",
		remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
	var exit utilexec.CodeExitError
	if !errors.As(err, &exit) || exit.Code != 7 {
		t.Errorf("got %v, want exit code 7", err)
	}
}

func TestExecEndsWithItsCaller(t *testing.T) {
	for _, protocol := range []string{"spdy", "websocket"} {
		t.Run(protocol, func(t *testing.T) {
			node := echoNode{ended: make(chan struct{})}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			// The caller goes when it has read something: when the command begins, the caller may not yet know of the
			// last stream, and would not reset it.
			began := writerFunc(func(text []byte) (int, error) { cancel(); return len(text), nil })
			err := stream(ctx, t, node, protocol, "command=hang&output=1", remotecommand.StreamOptions{Stdout: began})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v, want that the caller goes", err)
			}
			select {
			case <-node.ended:
			case <-time.After(5 * time.Second):
				t.Error("the command goes on without its caller")
			}
		})
	}
}

type writerFunc func([]byte) (int, error)

func (write writerFunc) Write(text []byte) (int, error) { return write(text) }
