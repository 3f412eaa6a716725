package kubelet

import (
	corev1 "k8s.io/api/core/v1"
)

// statusOf puts a pod's state into the words of the API. Conditions that others own stay as they are.
func statusOf(pod *corev1.Pod, state *podState, hostIPs []string) corev1.PodStatus {
	state.mu.Lock()
	defer state.mu.Unlock()
	status := *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	status.StartTime = &state.started
	status.Phase, status.Reason, status.Message = state.phase(pod.Spec.RestartPolicy), state.reason, state.message
	status.HostIP, status.HostIPs = hostIPs[0], nil
	for _, address := range hostIPs {
		status.HostIPs = append(status.HostIPs, corev1.HostIP{IP: address})
	}
	if len(state.ips) > 0 {
		status.PodIP, status.PodIPs = state.ips[0], nil
		for _, address := range state.ips {
			status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: address})
		}
	}
	status.InitContainerStatuses = containerStatuses(state.init, true)
	status.ContainerStatuses = containerStatuses(state.main, false)
	status.QOSClass = corev1.PodQOSBestEffort
	if pod.Status.QOSClass != "" {
		status.QOSClass = pod.Status.QOSClass
	}
	setConditions(&status, pod.Generation, state)
	return status
}

// phase is called with the lock held.
func (state *podState) phase(policy corev1.RestartPolicy) corev1.PodPhase {
	if state.final != "" {
		return state.final
	}
	if !state.initialized {
		return corev1.PodPending
	}
	waiting, over, failed := 0, 0, 0
	for _, container := range state.main {
		switch {
		case container.running != nil:
			return corev1.PodRunning
		case container.terminated != nil:
			over++
			if container.terminated.ExitCode != 0 {
				failed++
			}
		case container.last == nil:
			waiting++
		}
	}
	switch {
	case waiting > 0:
		return corev1.PodPending
	case over < len(state.main), policy == corev1.RestartPolicyAlways:
		return corev1.PodRunning
	case failed == 0:
		return corev1.PodSucceeded
	case policy == corev1.RestartPolicyNever:
		return corev1.PodFailed
	default:
		return corev1.PodRunning
	}
}

func containerStatuses(states []*containerState, init bool) []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	for _, state := range states {
		started := state.started
		status := corev1.ContainerStatus{
			Name: state.spec.Name, Image: state.spec.Image, ImageID: "test-kubelet://" + state.spec.Image,
			ContainerID: state.id, RestartCount: state.restarts, Ready: state.ready, Started: &started,
		}
		if init {
			status.Ready = state.terminated != nil && state.terminated.ExitCode == 0
		}
		status.LastTerminationState.Terminated = state.last
		switch {
		case state.running != nil:
			status.State.Running = &corev1.ContainerStateRunning{StartedAt: *state.running}
		case state.terminated != nil:
			status.State.Terminated = state.terminated
		default:
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: state.waiting, Message: state.message}
		}
		statuses = append(statuses, status)
	}
	return statuses
}

func setConditions(status *corev1.PodStatus, generation int64, state *podState) {
	notReady := ""
	for _, container := range state.main {
		if !container.ready {
			notReady = "containers with unready status: [" + container.spec.Name + "]"
		}
	}
	finished := status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed
	ready := notReady == "" && state.initialized && !finished
	reason := ""
	switch {
	case status.Phase == corev1.PodSucceeded:
		reason = "PodCompleted"
	case status.Phase == corev1.PodFailed:
		reason = "PodFailed"
	case !ready:
		reason = "ContainersNotReady"
	}
	for _, condition := range []struct {
		kind   corev1.PodConditionType
		truth  bool
		reason string
		detail string
	}{
		{corev1.PodScheduled, true, "", ""},
		{corev1.PodReadyToStartContainers, state.networkUp, "", ""},
		{corev1.PodInitialized, state.initialized, "", ""},
		{corev1.ContainersReady, ready, reason, notReady},
		{corev1.PodReady, ready, reason, notReady},
	} {
		setCondition(status, generation, condition.kind, condition.truth, condition.reason, condition.detail)
	}
}

func setCondition(status *corev1.PodStatus, generation int64, kind corev1.PodConditionType, truth bool, reason, message string) {
	wanted := corev1.PodCondition{
		Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: now(),
		ObservedGeneration: generation,
	}
	if truth {
		wanted.Status, wanted.Message = corev1.ConditionTrue, ""
	}
	for i := range status.Conditions {
		if have := &status.Conditions[i]; have.Type == kind {
			if have.Status == wanted.Status {
				wanted.LastTransitionTime = have.LastTransitionTime
			}
			*have = wanted
			return
		}
	}
	status.Conditions = append(status.Conditions, wanted)
}
