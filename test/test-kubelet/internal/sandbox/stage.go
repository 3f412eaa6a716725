// Package sandbox runs a container's programs as processes of this machine, in namespaces of their own.
//
// The test kubelet starts itself again ("test-kubelet stage") inside the new namespaces. The stage builds the container's root
// folder, gives up its rights, and becomes the container's program, so that the program is process 1 of its process
// namespace as in any other runtime: when it ends, the kernel ends everything it started.
package sandbox

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// StageArgument is the first argument that turns the test kubelet's program into a stage.
const StageArgument = "stage"

// Files that the parent hands to a stage.
const (
	stageProgramFD = 3 // the test kubelet's own program, which a container's root folder does not have
	stagePlanFD    = 4 // a Plan as JSON; a pipe, so that no secret is in an argument or in a file
	stageErrorFD   = 5 // closed by a successful exec; otherwise the reason
)

// Bind is a file or folder of the machine that a container sees.
type Bind struct {
	Source, Target string
	ReadOnly       bool
}

// Plan is all that a stage needs to become a container's program.
type Plan struct {
	// RootFS is nil for a program that joins a running container.
	RootFS   *RootFS
	Hostname string
	Argv     []string
	Env      []string
	Dir      string
	UID, GID int
	Groups   []int
	// Capabilities is the bounding set as a bit mask.
	Capabilities uint64
	NoNewPrivs   bool
}

// Stage runs in the child. It returns only by ending the process.
func Stage() {
	// Rights belong to threads: the one that sets them must be the one that calls exec.
	runtime.LockOSThread()
	complaints := os.NewFile(stageErrorFD, "errors")
	unix.CloseOnExec(stageErrorFD)
	err := stage()
	fmt.Fprint(complaints, err)
	os.Exit(128)
}

func stage() error {
	var plan Plan
	source := os.NewFile(stagePlanFD, "plan")
	text, err := io.ReadAll(source)
	if err != nil {
		return err
	}
	source.Close()
	unix.Close(stageProgramFD)
	if err := json.Unmarshal(text, &plan); err != nil {
		return err
	}
	if plan.RootFS != nil {
		if err := unix.Sethostname([]byte(plan.Hostname)); err != nil {
			return fmt.Errorf("set the host name: %w", err)
		}
		if err := plan.RootFS.build(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(plan.Dir, 0o755); err != nil {
		return fmt.Errorf("working folder: %w", err)
	}
	if err := os.Chdir(plan.Dir); err != nil {
		return fmt.Errorf("working folder: %w", err)
	}
	program, err := findProgram(plan.Argv[0], plan.Env)
	if err != nil {
		return err
	}
	if err := giveUpRights(&plan); err != nil {
		return err
	}
	if err := syscall.Exec(program, plan.Argv, plan.Env); err != nil {
		return fmt.Errorf("exec %s: %w", program, err)
	}
	return nil
}

// findProgram looks along the container's PATH, not the test kubelet's.
func findProgram(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := ""
	for _, variable := range env {
		if value, ok := strings.CutPrefix(variable, "PATH="); ok {
			path = value
		}
	}
	for _, folder := range filepath.SplitList(path) {
		candidate := filepath.Join(folder, name)
		if found, err := exec.LookPath(candidate); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH (%s)", name, path)
}
