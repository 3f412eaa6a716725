package kubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPhaseAndReady(t *testing.T) {
	begun := now()
	running := func(ready bool) *containerState {
		return &containerState{spec: &corev1.Container{Name: "a"}, running: &begun, started: true, ready: ready}
	}
	over := func(code int32) *containerState {
		return &containerState{spec: &corev1.Container{Name: "b"}, terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	crashing := &containerState{spec: &corev1.Container{Name: "c"}, waiting: "CrashLoopBackOff", last: &corev1.ContainerStateTerminated{ExitCode: 1}}
	creating := &containerState{spec: &corev1.Container{Name: "d"}, waiting: "ContainerCreating"}
	always, never, onFailure := corev1.RestartPolicyAlways, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure
	for _, test := range []struct {
		name       string
		policy     corev1.RestartPolicy
		containers []*containerState
		phase      corev1.PodPhase
		ready      corev1.ConditionStatus
	}{
		{"all run", always, []*containerState{running(true), running(true)}, corev1.PodRunning, corev1.ConditionTrue},
		{"one is not ready", always, []*containerState{running(true), running(false)}, corev1.PodRunning, corev1.ConditionFalse},
		{"the first is being made", always, []*containerState{creating}, corev1.PodPending, corev1.ConditionFalse},
		{"crashing", always, []*containerState{crashing}, corev1.PodRunning, corev1.ConditionFalse},
		{"ended and to be restarted", always, []*containerState{over(0)}, corev1.PodRunning, corev1.ConditionFalse},
		{"all done", never, []*containerState{over(0), over(0)}, corev1.PodSucceeded, corev1.ConditionFalse},
		{"one failed", never, []*containerState{over(0), over(3)}, corev1.PodFailed, corev1.ConditionFalse},
		{"one failed and is tried again", onFailure, []*containerState{over(0), over(3)}, corev1.PodRunning, corev1.ConditionFalse},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: test.policy}}
		state := &podState{started: begun, initialized: true, main: test.containers, ips: []string{"10.42.0.5"}}
		status := statusOf(pod, state, []string{"192.0.2.1"})
		ready := corev1.ConditionUnknown
		for _, condition := range status.Conditions {
			if condition.Type == corev1.PodReady {
				ready = condition.Status
			}
		}
		if status.Phase != test.phase || ready != test.ready {
			t.Errorf("%s: got %s and ready %s, want %s and %s", test.name, status.Phase, ready, test.phase, test.ready)
		}
	}
}

func TestStatusIsStable(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "x"}}}}
	state := newPodState(pod)
	pod.Status = statusOf(pod, state, []string{"192.0.2.1"})
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "example.com/other", Status: corev1.ConditionTrue})
	again := statusOf(pod, state, []string{"192.0.2.1"})
	if len(again.Conditions) != 6 || again.Conditions[5].Type != "example.com/other" {
		t.Errorf("conditions of others are not kept: %v", again.Conditions)
	}
	for i := range again.Conditions {
		if again.Conditions[i] != pod.Status.Conditions[i] {
			t.Errorf("%s changed without reason", again.Conditions[i].Type)
		}
	}
}
