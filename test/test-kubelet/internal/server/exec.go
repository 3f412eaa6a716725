package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"sealane.io/test-kubelet/internal/kubelet"
)

const (
	// A stream without traffic is cut off. Long, because a quiet command is not a broken one.
	execIdleTimeout = 4 * time.Hour
	// A client that does not open the streams it announced is not waited for.
	streamCreationTimeout = 30 * time.Second
)

// serveExec speaks SPDY and WebSocket through the same code as container runtimes do.
func serveExec(w http.ResponseWriter, r *http.Request, node Node) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	argv := r.URL.Query()["command"]
	if len(argv) == 0 {
		http.Error(w, "command: at least one is expected", http.StatusBadRequest)
		return
	}
	if _, _, err := node.LogFile(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"), false); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w, r, stop := untilGone(w, r)
	defer stop()
	executor := &executor{node: node, namespace: r.PathValue("namespace")}
	remotecommand.ServeExec(w, r, executor, r.PathValue("pod"), r.PathValue("uid"), r.PathValue("container"), argv,
		options, execIdleTimeout, streamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

type executor struct {
	node      Node
	namespace string
}

func (executor *executor) ExecInContainer(
	ctx context.Context, pod, _, container string, argv []string, stdin io.Reader, stdout, stderr io.WriteCloser,
	tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	command := kubelet.Command{Namespace: executor.namespace, Pod: pod, Container: container, Argv: argv, TTY: tty}
	// An interface that holds a nil pointer is not nil: only what is there is handed on.
	if stdin != nil {
		command.Stdin = stdin
	}
	if stdout != nil {
		command.Stdout = stdout
	}
	if stderr != nil {
		command.Stderr = stderr
	}
	if stream, ok := stdout.(io.Reader); ok {
		var gone context.CancelFunc
		ctx, gone = context.WithCancel(ctx)
		defer gone()
		go func() {
			// A client never sends on the output's stream. That it ends says that the client has reset it; over SPDY
			// it may then keep the connection for as long as our side of the stream is open.
			_, _ = io.Copy(io.Discard, stream)
			gone()
		}()
	}
	if tty && resize != nil {
		command.Resize = sizes(ctx, resize)
	}
	code, err := executor.node.Exec(ctx, command)
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("the client has gone")
	case err != nil:
		return err
	case code != 0:
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	}
	return nil
}

func sizes(ctx context.Context, resize <-chan remotecommand.TerminalSize) <-chan kubelet.Size {
	result := make(chan kubelet.Size)
	go func() {
		defer close(result)
		for {
			select {
			case size, open := <-resize:
				if !open {
					return
				}
				select {
				case result <- kubelet.Size{Rows: size.Height, Columns: size.Width}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return result
}
