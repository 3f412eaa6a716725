package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"sealane.io/test-kubelet/internal/network"
	"sealane.io/test-kubelet/internal/volumes"
)

// Kubelet is one node.
type Kubelet struct {
	Config
	nodeUID   types.UID
	objects   *objects
	volumes   *volumes.Maker
	refreshed *volumes.Maker
	bridge    *network.Bridge
	addresses *network.Addresses
	events    record.EventRecorder

	mu   sync.Mutex
	pods map[types.UID]*worker
}

// New takes a complete configuration.
func New(config Config) *Kubelet {
	hostRoot := filepath.Join(config.StateDir, "hostpath", config.Node)
	reader := &objects{client: config.Client, hostRoot: hostRoot, tokens: map[tokenKey]token{}}
	return &Kubelet{
		Config:  config,
		objects: reader,
		volumes: &volumes.Maker{Objects: reader, HostRoot: hostRoot, Shared: config.Shared},
		refreshed: &volumes.Maker{
			Objects: &recent{objects: reader}, HostRoot: hostRoot, Shared: config.Shared,
		},
		pods: map[types.UID]*worker{},
	}
}

// Run registers the node and runs its pods until the context ends; then it ends their processes.
func (kubelet *Kubelet) Run(ctx context.Context) error {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kubelet.Client.CoreV1().Events("")})
	defer broadcaster.Shutdown()
	kubelet.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "test-kubelet", Host: kubelet.Node})

	prefixes, err := kubelet.register(ctx)
	if err != nil {
		return err
	}
	kubelet.bridge = &network.Bridge{Name: kubelet.Bridge, Prefixes: prefixes, NamePrefix: kubelet.Prefix, MTU: kubelet.MTU}
	if err := kubelet.bridge.Setup(); err != nil {
		return err
	}
	kubelet.addresses = network.NewAddresses(prefixes)
	if err := kubelet.keepAddresses(); err != nil {
		return err
	}
	go kubelet.keepAlive(ctx)
	err = kubelet.followPods(ctx)
	kubelet.stopAll()
	kubelet.sayNotReady()
	return err
}

func (kubelet *Kubelet) followPods(ctx context.Context) error {
	source := cache.NewListWatchFromClient(kubelet.Client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
		fields.OneTermEqualSelector("spec.nodeName", kubelet.Node))
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source, ObjectType: &corev1.Pod{}, ResyncPeriod: 30 * time.Second,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { kubelet.take(ctx, object.(*corev1.Pod)) },
			UpdateFunc: func(_, object any) { kubelet.take(ctx, object.(*corev1.Pod)) },
			DeleteFunc: func(object any) {
				if unknown, lost := object.(cache.DeletedFinalStateUnknown); lost {
					object = unknown.Obj
				}
				if pod, ok := object.(*corev1.Pod); ok {
					kubelet.drop(pod)
				}
			},
		},
	})
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	kubelet.removeUnknown()
	kubelet.Log.Info("the node runs", "node", kubelet.Node)
	<-ctx.Done()
	return nil
}

// take starts a worker for a pod that is new, and gives an old pod's worker what has changed.
func (kubelet *Kubelet) take(ctx context.Context, pod *corev1.Pod) {
	kubelet.mu.Lock()
	defer kubelet.mu.Unlock()
	have, found := kubelet.pods[pod.UID]
	if !found {
		if over(pod) && pod.DeletionTimestamp == nil {
			return // it has run out in an earlier life; only its object is left
		}
		have = newWorker(kubelet, pod)
		kubelet.pods[pod.UID] = have
		go func() {
			have.run(ctx)
			kubelet.mu.Lock()
			delete(kubelet.pods, pod.UID)
			kubelet.mu.Unlock()
		}()
	}
	have.tell(pod)
}

func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// drop ends a pod whose object went without us: somebody deleted it by force.
func (kubelet *Kubelet) drop(pod *corev1.Pod) {
	kubelet.mu.Lock()
	have := kubelet.pods[pod.UID]
	kubelet.mu.Unlock()
	if have != nil {
		have.end(0)
	}
}

func (kubelet *Kubelet) stopAll() {
	kubelet.mu.Lock()
	workers := make([]*worker, 0, len(kubelet.pods))
	for _, worker := range kubelet.pods {
		workers = append(workers, worker)
	}
	kubelet.mu.Unlock()
	for _, worker := range workers {
		worker.end(0)
	}
	for _, worker := range workers {
		<-worker.done
	}
}

func (kubelet *Kubelet) sayNotReady() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := kubelet.reportNode(ctx, false); err != nil {
		kubelet.Log.Warn("could not say that the node stops", "error", err)
	}
}

// Find gives a pod's worker by name.
func (kubelet *Kubelet) find(namespace, name string) *worker {
	kubelet.mu.Lock()
	defer kubelet.mu.Unlock()
	for _, worker := range kubelet.pods {
		if pod := worker.latest(); pod.Namespace == namespace && pod.Name == name {
			return worker
		}
	}
	return nil
}

// Pods gives the pods that this node has now, with their latest status.
func (kubelet *Kubelet) Pods() *corev1.PodList {
	kubelet.mu.Lock()
	defer kubelet.mu.Unlock()
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for _, worker := range kubelet.pods {
		list.Items = append(list.Items, *worker.latest())
	}
	return list
}

// keepAddresses reserves what pods had in an earlier life of the test kubelet.
func (kubelet *Kubelet) keepAddresses() error {
	entries, err := os.ReadDir(kubelet.podsFolder())
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, entry := range entries {
		addresses, err := readAddresses(filepath.Join(kubelet.podsFolder(), entry.Name()))
		if err != nil {
			return err
		}
		kubelet.addresses.Keep(entry.Name(), addresses)
	}
	return nil
}

// removeUnknown takes away what is left of pods that were deleted while no test kubelet ran.
func (kubelet *Kubelet) removeUnknown() {
	entries, _ := os.ReadDir(kubelet.podsFolder())
	for _, entry := range entries {
		kubelet.mu.Lock()
		_, known := kubelet.pods[types.UID(entry.Name())]
		kubelet.mu.Unlock()
		if !known {
			kubelet.bridge.Detach(entry.Name())
			kubelet.addresses.Release(entry.Name())
			_ = os.RemoveAll(filepath.Join(kubelet.podsFolder(), entry.Name()))
		}
	}
}

const addressesFile = "addresses.json"

func readAddresses(folder string) ([]netip.Addr, error) {
	text, err := os.ReadFile(filepath.Join(folder, addressesFile))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	if err := json.Unmarshal(text, &addresses); err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	return addresses, nil
}

func ensureFolder(path string) (string, error) { return path, os.MkdirAll(path, 0o755) }

// sleep waits, and says whether the context is still alive.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
