package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sealane.io/test-kubelet/internal/podspec"
)

// worker lives as long as its pod does on this node.
type worker struct {
	kubelet *Kubelet
	state   *podState
	folder  string
	done    chan struct{}

	mu  sync.Mutex
	pod *corev1.Pod
	// Set when the pod is to end: its containers are killed at this time.
	killAt time.Time
	ending chan struct{}
}

func newWorker(kubelet *Kubelet, pod *corev1.Pod) *worker {
	return &worker{
		kubelet: kubelet, state: newPodState(pod), pod: pod, done: make(chan struct{}), ending: make(chan struct{}),
		folder: filepath.Join(kubelet.podsFolder(), string(pod.UID)),
	}
}

func (worker *worker) latest() *corev1.Pod {
	worker.mu.Lock()
	defer worker.mu.Unlock()
	return worker.pod
}

// tell hands over a newer version of the pod's object. What others wrote into its status is put right: the node
// controller says of the pods of a node that was silent that they are not ready, and never takes that back.
func (worker *worker) tell(pod *corev1.Pod) {
	worker.mu.Lock()
	worker.pod = pod
	worker.mu.Unlock()
	if pod.DeletionTimestamp == nil {
		worker.state.update(func() {})
		return
	}
	grace := 30 * time.Second
	if pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	worker.end(worker.kubelet.bounded(grace))
}

// end has the pod ended within the grace period. A later, shorter period counts; a longer one does not.
func (worker *worker) end(grace time.Duration) {
	worker.mu.Lock()
	defer worker.mu.Unlock()
	at := time.Now().Add(grace)
	if worker.killAt.IsZero() {
		close(worker.ending)
		worker.killAt = at
	} else if at.Before(worker.killAt) {
		worker.killAt = at
	}
}

func (worker *worker) deadline() time.Time {
	worker.mu.Lock()
	defer worker.mu.Unlock()
	return worker.killAt
}

// run is a pod's whole life. The context is the test kubelet's: when it ends, so do the processes, and the object stays.
func (worker *worker) run(ctx context.Context) {
	defer close(worker.done)
	if over(worker.latest()) {
		worker.waitForEnd(ctx)
		worker.clean(ctx)
		return
	}
	reporting, stopReporting := context.WithCancel(context.WithoutCancel(ctx))
	reported := make(chan struct{})
	go func() { defer close(reported); worker.report(reporting) }()

	life, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-worker.ending:
			cancel()
		case <-life.Done():
		}
	}()
	if seconds := worker.latest().Spec.ActiveDeadlineSeconds; seconds != nil {
		expiry := time.AfterFunc(time.Duration(*seconds)*time.Second, func() { worker.expire(cancel) })
		defer expiry.Stop()
	}
	worker.live(life)
	worker.waitForEnd(ctx)
	worker.state.update(func() { worker.state.networkUp = false })
	stopReporting()
	<-reported
	worker.clean(ctx)
}

// expire ends a pod whose time is over (activeDeadlineSeconds), unless it has ended by itself.
func (worker *worker) expire(end context.CancelFunc) {
	var phase corev1.PodPhase
	policy := worker.latest().Spec.RestartPolicy
	worker.state.read(func() { phase = worker.state.phase(policy) })
	if phase == corev1.PodFailed || phase == corev1.PodSucceeded {
		return
	}
	worker.state.finish(corev1.PodFailed, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
	end()
}

func (worker *worker) waitForEnd(ctx context.Context) {
	select {
	case <-worker.ending:
	case <-ctx.Done():
	}
}

// clean removes what the pod had here, and its object if somebody wants it gone.
func (worker *worker) clean(ctx context.Context) {
	worker.tearDown()
	if pod := worker.latest(); pod.DeletionTimestamp != nil {
		worker.deleteObject(context.WithoutCancel(ctx), pod)
	}
	worker.kubelet.objects.forget(worker.latest().UID)
}

func (worker *worker) live(life context.Context) {
	if life.Err() != nil {
		return
	}
	if problems := worker.problems(); len(problems) > 0 {
		worker.refuse(strings.Join(problems, "; "))
		return
	}
	if missing := worker.missingImages(); missing != "" {
		worker.awaitImage(missing)
		return
	}
	if !worker.prepare(life) || !worker.runInit(life) {
		return
	}
	worker.state.update(func() { worker.state.initialized = true })
	refreshing, stop := context.WithCancel(life)
	go worker.refreshVolumes(refreshing)
	var all sync.WaitGroup
	for _, container := range worker.state.main {
		all.Go(func() { worker.supervise(life, container) })
	}
	all.Wait()
	stop()
}

func (worker *worker) problems() []string {
	return podspec.Unsupported(worker.latest())
}

// missingImages says what the table of images lacks; empty when it has all.
func (worker *worker) missingImages() string {
	pod := worker.latest()
	var missing []string
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range list {
			if _, err := worker.kubelet.Images.Find(container.Image); err != nil {
				missing = append(missing, fmt.Sprintf("container %s: %v", container.Name, err))
			}
		}
	}
	return strings.Join(missing, "; ")
}

// awaitImage waits for an image as a kubelet does: for ever, in a pod that stays Pending. The table never changes.
func (worker *worker) awaitImage(message string) {
	worker.warn("ErrImagePull", message)
	worker.state.update(func() {
		for _, container := range append(worker.state.init, worker.state.main...) {
			container.waiting, container.message = "ImagePullBackOff", message
		}
	})
}

// refuse says no, in an Event and in the pod's status. A pod that a controller made stays Pending: a Failed one would
// be replaced at once, and again, as fast as the controller can.
func (worker *worker) refuse(message string) {
	pod := worker.latest()
	worker.warn("UnsupportedByTestKubelet", message)
	if metav1.GetControllerOf(pod) == nil {
		worker.state.finish(corev1.PodFailed, "UnsupportedByTestKubelet", message)
		return
	}
	worker.state.update(func() {
		for _, container := range append(worker.state.init, worker.state.main...) {
			container.waiting, container.message = "UnsupportedByTestKubelet", message
		}
	})
}

func (worker *worker) warn(reason, message string) {
	pod := worker.latest()
	worker.kubelet.Log.Warn(message, "pod", pod.Namespace+"/"+pod.Name, "reason", reason)
	worker.kubelet.events.Event(pod, corev1.EventTypeWarning, reason, message)
}

// prepare makes the pod's network and volumes, again and again until it works or the pod is to end.
func (worker *worker) prepare(life context.Context) bool {
	said := ""
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		reason, err := worker.prepareOnce()
		if err == nil {
			return life.Err() == nil
		}
		if text := err.Error(); text != said {
			said = text
			worker.warn(reason, text)
			worker.state.update(func() {
				for _, container := range append(worker.state.init, worker.state.main...) {
					container.message = text
				}
			})
		}
		if !sleep(life, pause) {
			return false
		}
	}
}

func (worker *worker) prepareOnce() (string, error) {
	if err := worker.makeNetwork(); err != nil {
		return "FailedCreatePodSandBox", err
	}
	if err := worker.writeEtc(); err != nil {
		return "FailedCreatePodSandBox", err
	}
	if _, err := worker.makeVolumes(); err != nil {
		return "FailedMount", err
	}
	return "", nil
}

func (worker *worker) makeNetwork() error {
	if _, err := ensureFolder(worker.folder); err != nil {
		return err
	}
	up := false
	worker.state.read(func() { up = worker.state.networkUp })
	pod := worker.latest()
	if up {
		return nil
	}
	ips := worker.kubelet.NodeIPs
	if !pod.Spec.HostNetwork {
		var err error
		if ips, err = worker.attach(pod); err != nil {
			return err
		}
	}
	worker.state.update(func() { worker.state.ips, worker.state.networkUp = ips, true })
	return nil
}

func (worker *worker) attach(pod *corev1.Pod) ([]string, error) {
	uid := string(pod.UID)
	addresses, err := readAddresses(worker.folder)
	if err != nil {
		return nil, err
	}
	if addresses == nil {
		if addresses, err = worker.kubelet.addresses.Take(uid); err != nil {
			return nil, err
		}
		text, _ := json.Marshal(addresses)
		if err := os.WriteFile(filepath.Join(worker.folder, addressesFile), text, 0o644); err != nil {
			return nil, err
		}
	}
	if err := worker.kubelet.bridge.Attach(uid, addresses); err != nil {
		return nil, err
	}
	if err := setSysctls(worker.netns(), pod.Spec.SecurityContext); err != nil {
		return nil, err
	}
	var ips []string
	for _, address := range addresses {
		ips = append(ips, address.String())
	}
	return ips, nil
}

// tearDown removes all that the pod had on this node. Its processes have ended.
func (worker *worker) tearDown() {
	pod := worker.latest()
	if !pod.Spec.HostNetwork {
		worker.kubelet.bridge.Detach(string(pod.UID))
		worker.kubelet.addresses.Release(string(pod.UID))
	}
	if pod.DeletionTimestamp == nil {
		return // the test kubelet stops and the pod goes on with the next one
	}
	if err := os.RemoveAll(worker.folder); err != nil {
		worker.kubelet.Log.Warn("a pod's folder was not removed", "error", err)
	}
}

func (worker *worker) deleteObject(ctx context.Context, pod *corev1.Pod) {
	zero := int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		attempt, cancel := context.WithTimeout(ctx, objectTimeout)
		err := worker.kubelet.Client.CoreV1().Pods(pod.Namespace).Delete(attempt, pod.Name, options)
		cancel()
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		worker.kubelet.Log.Warn("a pod's object was not deleted", "pod", pod.Namespace+"/"+pod.Name, "error", err)
		time.Sleep(pause)
	}
}
