package kubelet

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sealane.io/test-kubelet/internal/sandbox"
)

// podState is what is true of a pod on this node. The worker changes it, the status writer reads it.
type podState struct {
	mu          sync.Mutex
	started     metav1.Time
	ips         []string
	networkUp   bool
	initialized bool
	// A pod that is refused or has run out; the phase never changes again.
	final           corev1.PodPhase
	reason, message string
	init, main      []*containerState
	changed         chan struct{}
}

// containerState is one container's part. Fields are guarded by the pod's lock.
type containerState struct {
	spec             *corev1.Container
	process          *sandbox.Process
	plan             *sandbox.Plan // what a further program in the container starts from
	id               string
	waiting, message string
	running          *metav1.Time
	last, terminated *corev1.ContainerStateTerminated
	restarts         int32
	// started: the startup probe has passed. ready: started, and the readiness probe has passed last time.
	started, ready bool
}

func newPodState(pod *corev1.Pod) *podState {
	state := &podState{started: now(), changed: make(chan struct{}, 1)}
	if pod.Status.StartTime != nil {
		state.started = *pod.Status.StartTime
	}
	state.init = newContainerStates(pod.Spec.InitContainers, pod.Status.InitContainerStatuses, "PodInitializing")
	waiting := "ContainerCreating"
	if len(state.init) > 0 {
		waiting = "PodInitializing"
	}
	state.main = newContainerStates(pod.Spec.Containers, pod.Status.ContainerStatuses, waiting)
	return state
}

func newContainerStates(specs []corev1.Container, earlier []corev1.ContainerStatus, waiting string) []*containerState {
	states := make([]*containerState, 0, len(specs))
	for i := range specs {
		state := &containerState{spec: &specs[i], waiting: waiting}
		for _, status := range earlier {
			// An earlier test kubelet ran it: this life is a restart.
			if status.Name == specs[i].Name && status.ContainerID != "" {
				state.restarts = status.RestartCount + 1
			}
		}
		states = append(states, state)
	}
	return states
}

// update changes the state under its lock and has it reported.
func (state *podState) update(change func()) {
	state.mu.Lock()
	change()
	state.mu.Unlock()
	select {
	case state.changed <- struct{}{}:
	default:
	}
}

// read looks at the state under its lock.
func (state *podState) read(look func()) {
	state.mu.Lock()
	defer state.mu.Unlock()
	look()
}

func (state *podState) finish(phase corev1.PodPhase, reason, message string) {
	state.update(func() { state.final, state.reason, state.message = phase, reason, message })
}

// container finds a container by name; with no name, the first.
func (state *podState) container(name string) *containerState {
	state.mu.Lock()
	defer state.mu.Unlock()
	if name == "" && len(state.main) > 0 {
		return state.main[0]
	}
	for _, list := range [][]*containerState{state.main, state.init} {
		for _, container := range list {
			if container.spec.Name == name {
				return container
			}
		}
	}
	return nil
}

func (container *containerState) ended(code int, reason, message string, since metav1.Time) {
	container.terminated = &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Reason: reason, Message: message, StartedAt: since, FinishedAt: now(),
		ContainerID: container.id,
	}
	if code > 128 && reason == "Error" {
		container.terminated.Signal = int32(code - 128)
	}
	container.process, container.running = nil, nil
	container.started, container.ready = false, false
}

// now has the precision of the API: anything finer would look like a change when it comes back.
func now() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }
