package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"sealane.io/test-kubelet/internal/network"
	"sealane.io/test-kubelet/internal/sandbox"
)

// ErrNotFound says that there is no such pod or container on this node.
var ErrNotFound = errors.New("there is no such running container on this node")

// runIn runs a further program in a container and waits for it. The program is killed when the context ends.
func runIn(ctx context.Context, container *containerState, process *sandbox.Process, argv []string, streams sandbox.Streams) (int, error) {
	plan := *container.plan
	plan.RootFS, plan.Argv = nil, argv
	inside, err := sandbox.Start(sandbox.Where{Join: process.PID}, &plan, streams)
	if err != nil {
		return 128, err
	}
	select {
	case <-inside.Done():
	case <-ctx.Done():
		inside.Signal(syscall.SIGKILL)
		<-inside.Done()
		return 128, ctx.Err()
	}
	return inside.Result()
}

// Size is a terminal's size in characters.
type Size struct{ Rows, Columns uint16 }

// Command is a program that somebody wants to run in a container.
type Command struct {
	Namespace, Pod, Container string
	Argv                      []string
	Stdin                     io.Reader
	Stdout, Stderr            io.Writer
	TTY                       bool
	Resize                    <-chan Size
}

// Exec runs a command in a container and gives its exit code.
func (kubelet *Kubelet) Exec(ctx context.Context, command Command) (int, error) {
	container, process := kubelet.running(command.Namespace, command.Pod, command.Container)
	if process == nil {
		return 0, ErrNotFound
	}
	if !command.TTY {
		return runIn(ctx, container, process, command.Argv, sandbox.Streams{Stdin: command.Stdin, Stdout: command.Stdout, Stderr: command.Stderr})
	}
	ours, theirs, err := sandbox.OpenTerminal()
	if err != nil {
		return 0, err
	}
	defer ours.Close()
	if command.Stdin != nil {
		go func() { _, _ = io.Copy(ours, command.Stdin) }()
	}
	go func() {
		for size := range command.Resize {
			_ = sandbox.Resize(ours, size.Rows, size.Columns)
		}
	}()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		if command.Stdout != nil {
			// Ends with an error when the last program lets go of the terminal.
			_, _ = io.Copy(command.Stdout, ours)
		}
	}()
	code, err := runIn(ctx, container, process, command.Argv, sandbox.Streams{TTY: theirs})
	theirs.Close()
	select {
	case <-copied:
	case <-time.After(2 * time.Second):
		// A program that was left in the background holds the terminal.
	}
	return code, err
}

// Dial connects to a port on the loopback of a pod.
func (kubelet *Kubelet) Dial(ctx context.Context, namespace, pod string, port uint16) (net.Conn, error) {
	worker := kubelet.find(namespace, pod)
	if worker == nil {
		return nil, ErrNotFound
	}
	return network.DialLoopback(ctx, worker.netns(), port)
}

func (kubelet *Kubelet) running(namespace, pod, name string) (*containerState, *sandbox.Process) {
	worker := kubelet.find(namespace, pod)
	if worker == nil {
		return nil, nil
	}
	container := worker.state.container(name)
	if container == nil {
		return nil, nil
	}
	var process *sandbox.Process
	worker.state.read(func() { process = container.process })
	return container, process
}

// preStop runs a container's hook, at most until the deadline.
func (worker *worker) preStop(container *containerState, process *sandbox.Process, deadline func() time.Time) {
	lifecycle := container.spec.Lifecycle
	if lifecycle == nil || lifecycle.PreStop == nil {
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline())
	defer cancel()
	switch hook := lifecycle.PreStop; {
	case hook.Sleep != nil:
		sleep(ctx, time.Duration(hook.Sleep.Seconds)*time.Second)
	case hook.Exec != nil:
		code, err := runIn(ctx, container, process, hook.Exec.Command, sandbox.Streams{Stdout: io.Discard, Stderr: io.Discard})
		if err != nil || code != 0 {
			worker.warn("FailedPreStopHook", fmt.Sprintf("container %s: exit code %d: %v", container.spec.Name, code, err))
		}
	}
}

// LogFile gives the file of a container's output, of its present or its previous life, and whether that life goes on.
func (kubelet *Kubelet) LogFile(namespace, pod, name string, previous bool) (path string, live func() bool, err error) {
	worker := kubelet.find(namespace, pod)
	if worker == nil {
		return "", nil, ErrNotFound
	}
	container := worker.state.container(name)
	if container == nil {
		return "", nil, ErrNotFound
	}
	var life int32
	var process *sandbox.Process
	var waiting bool
	worker.state.read(func() {
		life, process = container.restarts, container.process
		waiting = process == nil && container.terminated == nil
	})
	if previous || waiting && life > 0 {
		life--
		process = nil
	}
	if life < 0 {
		return "", nil, fmt.Errorf("container %s has no previous life", name)
	}
	earlier := containerState{spec: container.spec, restarts: life}
	return worker.logPath(&earlier), func() bool {
		if process == nil {
			return false
		}
		select {
		case <-process.Done():
			return false
		default:
			return true
		}
	}, nil
}
