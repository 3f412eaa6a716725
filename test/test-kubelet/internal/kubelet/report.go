package kubelet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// report writes the pod's status whenever its state has changed, and once more at the end.
func (worker *worker) report(ctx context.Context) {
	for {
		select {
		case <-worker.state.changed:
			worker.write(ctx)
		case <-ctx.Done():
			final, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			worker.write(final)
			return
		}
	}
}

func (worker *worker) write(ctx context.Context) {
	pod := worker.latest()
	pods := worker.kubelet.Client.CoreV1().Pods(pod.Namespace)
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		status := statusOf(pod, worker.state, worker.kubelet.NodeIPs)
		if equality.Semantic.DeepEqual(status, pod.Status) {
			return
		}
		wanted := pod.DeepCopy()
		wanted.Status = status
		attempt, cancel := context.WithTimeout(ctx, objectTimeout)
		updated, err := pods.UpdateStatus(attempt, wanted, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			updated, err = worker.reload(attempt, pod)
			cancel()
			if err == nil && updated != nil {
				pod = updated
				continue
			}
		}
		cancel()
		if err == nil {
			worker.remember(updated)
			return
		}
		if apierrors.IsNotFound(err) {
			return
		}
		worker.kubelet.Log.Warn("a pod's status was not written", "pod", pod.Namespace+"/"+pod.Name, "error", err)
		if !sleep(ctx, pause) {
			return
		}
	}
}

// reload gives the object as it is now; an error when another pod has taken its name.
func (worker *worker) reload(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	now, err := worker.kubelet.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if now.UID != pod.UID {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	return now, nil
}

// remember keeps the written status, so that the next write does not start from an older one. The watch decides about
// everything else.
func (worker *worker) remember(written *corev1.Pod) {
	worker.mu.Lock()
	defer worker.mu.Unlock()
	if written == nil || worker.pod.UID != written.UID {
		return
	}
	merged := worker.pod.DeepCopy()
	merged.Status, merged.ResourceVersion = written.Status, written.ResourceVersion
	worker.pod = merged
}
