package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Where says which namespaces a program is started in.
type Where struct {
	// NetNS is the path of a network namespace, such as /run/netns/x; empty stays in the test kubelet's.
	NetNS string
	// Join is the process id of a running container's process 1; 0 makes a new container.
	Join int
}

// Streams are a program's input and output. Files are handed over as they are, others are copied.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// TTY is the program's side of a pseudo terminal. It takes the place of the others.
	TTY *os.File
}

// Process is a started program.
type Process struct {
	PID  int
	done chan struct{}
	code int
	err  error
}

// Done is closed when the program has ended and its output has been copied.
func (process *Process) Done() <-chan struct{} { return process.done }

// Result gives the exit code once Done is closed: 128 plus the signal for a killed program.
func (process *Process) Result() (int, error) { <-process.done; return process.code, process.err }

// Signal sends a signal to the program; one that has ended is not an error.
func (process *Process) Signal(signal syscall.Signal) {
	select {
	case <-process.done:
	default:
		_ = unix.Kill(process.PID, signal)
	}
}

// Start runs the plan. It returns when the program has been reached by exec, or with the reason why not.
//
// The program is killed by the kernel when the thread that started it ends, so one thread stays with each program.
func Start(where Where, plan *Plan, streams Streams) (*Process, error) {
	process := &Process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Never unlocked: the thread has changed namespaces and must not be used for anything else.
		runtime.LockOSThread()
		defer close(process.done)
		command, finish, err := startHere(where, plan, streams)
		if err != nil {
			started <- err
			return
		}
		process.PID = command.Process.Pid
		started <- nil
		process.code, process.err = exitCode(command.Wait())
		finish()
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return process, nil
}

func startHere(where Where, plan *Plan, streams Streams) (*exec.Cmd, func(), error) {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, nil, err
	}
	defer program.Close()
	attributes := &syscall.SysProcAttr{Setsid: true}
	if err := enterNamespaces(where, attributes); err != nil {
		return nil, nil, err
	}
	planOut, planIn, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	errorOut, errorIn, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer errorOut.Close()
	command := &exec.Cmd{
		// By descriptor: a running container's root folder does not have the test kubelet's program.
		Path: fmt.Sprintf("/proc/self/fd/%d", stageProgramFD), Args: []string{"test-kubelet", StageArgument},
		Env: []string{"GOMAXPROCS=1"}, SysProcAttr: attributes,
		ExtraFiles: []*os.File{program, planOut, errorIn}, WaitDelay: 2 * time.Second,
	}
	finish, err := connect(command, streams, attributes)
	if err != nil {
		return nil, nil, err
	}
	err = command.Start()
	planOut.Close()
	errorIn.Close()
	if err != nil {
		planIn.Close()
		return nil, nil, err
	}
	text, err := json.Marshal(plan)
	if err == nil {
		_, err = planIn.Write(text)
	}
	planIn.Close()
	complaint, _ := io.ReadAll(errorOut)
	if len(complaint) > 0 {
		_ = command.Wait()
		return nil, nil, errors.New(strings.TrimSpace(string(complaint)))
	}
	if err != nil {
		_ = command.Process.Kill()
		return nil, nil, fmt.Errorf("start the program: %w (%v)", err, command.Wait())
	}
	return command, finish, nil
}

// enterNamespaces moves this thread, from which the program is then started.
func enterNamespaces(where Where, attributes *syscall.SysProcAttr) error {
	if where.Join != 0 {
		handle, err := unix.PidfdOpen(where.Join, 0)
		if err != nil {
			return fmt.Errorf("the container has ended: %w", err)
		}
		defer unix.Close(handle)
		// A thread shares its root and working folder with the others until it says otherwise.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		kinds := unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
		if err := unix.Setns(handle, kinds); err != nil {
			return fmt.Errorf("join the container: %w", err)
		}
		return nil
	}
	if where.NetNS != "" {
		file, err := os.Open(where.NetNS)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter %s: %w", where.NetNS, err)
		}
	}
	// Not when joining: Go then finds a parent that is not in the same process namespace and takes it for dead. There
	// the stage sets the signal itself, and the container's end takes the program along anyway.
	attributes.Pdeathsig = syscall.SIGKILL
	attributes.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC
	return nil
}

func connect(command *exec.Cmd, streams Streams, attributes *syscall.SysProcAttr) (func(), error) {
	if streams.TTY != nil {
		command.Stdin, command.Stdout, command.Stderr = streams.TTY, streams.TTY, streams.TTY
		attributes.Setctty, attributes.Ctty = true, 0
		return func() { streams.TTY.Close() }, nil
	}
	command.Stdout, command.Stderr = streams.Stdout, streams.Stderr
	if streams.Stdin == nil {
		return func() {}, nil
	}
	// Not command.Stdin: Wait would then wait for the sender, who may wait for the program's end.
	pipe, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	go func() {
		_, _ = io.Copy(pipe, streams.Stdin)
		pipe.Close()
	}()
	return func() {}, nil
}

func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return 0, nil
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return exit.ExitCode(), nil
	default:
		return 128, err
	}
}
