package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sealane.io/test-kubelet/internal/sandbox"
)

const (
	// The first restart is immediate. Then the pause doubles; a real kubelet starts at 10 s and goes to 5 min.
	firstPause   = time.Second
	longestPause = 30 * time.Second
	// A container that has run this long starts over with an immediate restart.
	goodRun = time.Minute
)

// runInit runs the init containers one after the other. It says whether all have succeeded.
func (worker *worker) runInit(life context.Context) bool {
	policy := worker.latest().Spec.RestartPolicy
	for _, container := range worker.state.init {
		for pause := time.Duration(0); ; pause = nextPause(pause) {
			if pause > 0 && !sleep(life, pause) {
				return false
			}
			code := worker.runOnce(life, container)
			if life.Err() != nil {
				return false
			}
			if code == 0 {
				break
			}
			if policy == corev1.RestartPolicyNever {
				worker.state.finish(corev1.PodFailed, "", fmt.Sprintf("init container %s failed", container.spec.Name))
				return false
			}
			worker.state.update(func() { container.again() })
		}
	}
	return true
}

// supervise runs a container, again and again as the restart policy says, until the pod is to end.
func (worker *worker) supervise(life context.Context, container *containerState) {
	policy := worker.latest().Spec.RestartPolicy
	pause := time.Duration(0)
	for {
		begun := time.Now()
		code := worker.runOnce(life, container)
		if life.Err() != nil || policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && code == 0 {
			return
		}
		if time.Since(begun) > goodRun {
			pause = 0
		}
		worker.state.update(func() { container.again() })
		if pause > 0 {
			pod := worker.latest()
			worker.kubelet.events.Eventf(pod, corev1.EventTypeWarning, "BackOff", "restarting container %s in %s", container.spec.Name, pause)
			if !sleep(life, pause) {
				return
			}
		}
		pause = nextPause(pause)
	}
}

func nextPause(pause time.Duration) time.Duration {
	if pause == 0 {
		return firstPause
	}
	return min(2*pause, longestPause)
}

// again turns an ended life into the last one. It is called with the pod's lock held.
func (container *containerState) again() {
	if container.terminated == nil {
		return // it was never started, and says itself what it waits for
	}
	container.restarts++
	container.last, container.terminated = container.terminated, nil
	container.waiting, container.message = "CrashLoopBackOff", ""
}

// runOnce is one life of a container: it gives the exit code, 128 when it could not be started.
func (worker *worker) runOnce(life context.Context, container *containerState) int {
	log, err := newLogFile(worker.logPath(container))
	if err != nil {
		return worker.notStarted(container, "CreateContainerError", err)
	}
	defer log.Close()
	stdout, stderr := &logWriter{log: log, stream: "stdout"}, &logWriter{log: log, stream: "stderr"}
	plan, err := worker.plan(container)
	if err != nil {
		return worker.notStarted(container, "CreateContainerConfigError", err)
	}
	process, err := sandbox.Start(sandbox.Where{NetNS: worker.netns()}, plan, sandbox.Streams{Stdout: stdout, Stderr: stderr})
	if err != nil {
		return worker.notStarted(container, "RunContainerError", err)
	}
	since := now()
	worker.state.update(func() {
		container.process, container.plan, container.running = process, plan, &since
		container.terminated = nil
		container.started = container.spec.StartupProbe == nil
		container.ready = container.started && container.spec.ReadinessProbe == nil
	})
	probing, stopProbes := context.WithCancel(life)
	defer stopProbes()
	unhealthy := worker.probe(probing, container, process)
	select {
	case <-process.Done():
	case why := <-unhealthy:
		worker.warn("Unhealthy", why)
		patience := time.Now().Add(worker.grace())
		worker.stop(container, process, func() time.Time { return patience })
	case <-life.Done():
		worker.stop(container, process, worker.deadline)
	}
	code, err := process.Result()
	stdout.flush()
	stderr.flush()
	reason, message := "Completed", ""
	if code != 0 {
		reason = "Error"
		if container.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
			message = log.lastWords()
		}
	}
	if err != nil {
		message = err.Error()
	}
	worker.state.update(func() { container.ended(code, reason, message, since) })
	return code
}

func (worker *worker) notStarted(container *containerState, reason string, err error) int {
	worker.warn(reason, fmt.Sprintf("container %s: %v", container.spec.Name, err))
	worker.state.update(func() {
		container.ended(128, reason, err.Error(), now())
		if reason == "CreateContainerConfigError" {
			// Not a failed run: it waits for what is missing.
			container.terminated = nil
			container.waiting, container.message = reason, err.Error()
		}
	})
	return 128
}

// stop ends a container: its preStop hook, SIGTERM, and SIGKILL at the deadline, which may come closer meanwhile.
func (worker *worker) stop(container *containerState, process *sandbox.Process, deadline func() time.Time) {
	if !time.Now().Before(deadline()) {
		process.Signal(syscall.SIGKILL)
		return
	}
	worker.preStop(container, process, deadline)
	process.Signal(syscall.SIGTERM)
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-process.Done():
			return
		case <-look.C:
			if time.Now().After(deadline()) {
				process.Signal(syscall.SIGKILL)
				return
			}
		}
	}
}

// grace is the time that the pod gives its containers to end.
func (worker *worker) grace() time.Duration {
	grace := 30 * time.Second
	if seconds := worker.latest().Spec.TerminationGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}
	return worker.kubelet.bounded(grace)
}

func (kubelet *Kubelet) bounded(grace time.Duration) time.Duration {
	if kubelet.MaxGrace > 0 {
		return min(grace, kubelet.MaxGrace)
	}
	return grace
}

func (worker *worker) logPath(container *containerState) string {
	return filepath.Join(worker.folder, "logs", container.spec.Name, strconv.Itoa(int(container.restarts))+".log")
}
