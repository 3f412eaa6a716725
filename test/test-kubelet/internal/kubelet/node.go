package kubelet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

const (
	leaseNamespace = "kube-node-lease"
	leaseSeconds   = 40
	leaseRenewal   = 5 * time.Second
	statusRenewal  = time.Minute
)

// register makes the Node object, or takes over the one that is there, and waits until it has pod prefixes.
func (kubelet *Kubelet) register(ctx context.Context) ([]netip.Prefix, error) {
	nodes := kubelet.Client.CoreV1().Nodes()
	for {
		node, err := nodes.Get(ctx, kubelet.Node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			node, err = nodes.Create(ctx, kubelet.newNode(), metav1.CreateOptions{})
		}
		if err == nil {
			kubelet.nodeUID = node.UID
			var prefixes []netip.Prefix
			if prefixes, err = kubelet.podPrefixes(node); err == nil && len(prefixes) > 0 {
				return prefixes, nil
			}
		}
		if err != nil {
			kubelet.Log.Warn("the node is not registered yet", "error", err)
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

func (kubelet *Kubelet) newNode() *corev1.Node {
	labels := map[string]string{
		corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH, corev1.LabelHostname: kubelet.Node,
	}
	for key, value := range kubelet.Labels {
		labels[key] = value
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: kubelet.Node, Labels: labels}}
	if len(kubelet.PodCIDRs) > 0 {
		node.Spec.PodCIDR, node.Spec.PodCIDRs = kubelet.PodCIDRs[0], kubelet.PodCIDRs
	}
	return node
}

func (kubelet *Kubelet) podPrefixes(node *corev1.Node) ([]netip.Prefix, error) {
	texts := kubelet.PodCIDRs
	if len(texts) == 0 {
		texts = node.Spec.PodCIDRs
	}
	var prefixes []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("pod prefix: %w", err)
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes, nil
}

// keepAlive renews the node's Lease and its status until the context ends.
func (kubelet *Kubelet) keepAlive(ctx context.Context) {
	reported := time.Time{}
	for {
		if time.Since(reported) > statusRenewal {
			if err := kubelet.reportNode(ctx, true); err != nil {
				kubelet.Log.Warn("the node's status was not written", "error", err)
			} else {
				reported = time.Now()
			}
		}
		if err := kubelet.renewLease(ctx); err != nil && ctx.Err() == nil {
			kubelet.Log.Warn("the node's lease was not renewed", "error", err)
			// Meanwhile the node may have been declared lost, and only its own word brings it back.
			reported = time.Time{}
		}
		pause := leaseRenewal
		if reported.IsZero() {
			pause = 300 * time.Millisecond
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

func (kubelet *Kubelet) renewLease(ctx context.Context) error {
	leases := kubelet.Client.CoordinationV1().Leases(leaseNamespace)
	now, seconds := metav1.NowMicro(), int32(leaseSeconds)
	lease, err := leases.Get(ctx, kubelet.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: kubelet.Node, Namespace: leaseNamespace}}
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: kubelet.Node, UID: kubelet.nodeUID}}
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &kubelet.Node, LeaseDurationSeconds: &seconds, RenewTime: &now}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &kubelet.Node, &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

func (kubelet *Kubelet) reportNode(ctx context.Context, ready bool) error {
	nodes := kubelet.Client.CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(ctx, kubelet.Node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		kubelet.describe(&node.Status, ready)
		_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

func (kubelet *Kubelet) describe(status *corev1.NodeStatus, ready bool) {
	status.Addresses = nil
	for _, address := range kubelet.NodeIPs {
		status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: kubelet.Node})
	status.DaemonEndpoints.KubeletEndpoint.Port = int32(kubelet.Port)
	status.Images = kubelet.imageList()
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(64, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(64<<30, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(64<<30, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(250, resource.DecimalSI),
	}
	status.Capacity, status.Allocatable = capacity, capacity
	status.NodeInfo = corev1.NodeSystemInfo{
		KubeletVersion: Version, OSImage: "test-kubelet", OperatingSystem: "linux", Architecture: runtime.GOARCH,
		ContainerRuntimeVersion: "test-kubelet://1", KernelVersion: kernelRelease(), MachineID: kubelet.Node, SystemUUID: kubelet.Node,
	}
	truth := corev1.ConditionFalse
	if ready {
		truth = corev1.ConditionTrue
	}
	for _, condition := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "NotMeasured"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "NotMeasured"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "NotMeasured"},
		{Type: corev1.NodeReady, Status: truth, Reason: "TestKubeletRuns"},
	} {
		setNodeCondition(status, condition)
	}
}

// imageList is the table of images as a kubelet reports those that its node has.
func (kubelet *Kubelet) imageList() []corev1.ContainerImage {
	var list []corev1.ContainerImage
	for _, name := range kubelet.Images.Names() {
		list = append(list, corev1.ContainerImage{Names: []string{name}})
	}
	return list
}

func setNodeCondition(status *corev1.NodeStatus, condition corev1.NodeCondition) {
	condition.LastHeartbeatTime = now()
	condition.LastTransitionTime = condition.LastHeartbeatTime
	for i := range status.Conditions {
		if have := &status.Conditions[i]; have.Type == condition.Type {
			if have.Status == condition.Status {
				condition.LastTransitionTime = have.LastTransitionTime
			}
			*have = condition
			return
		}
	}
	status.Conditions = append(status.Conditions, condition)
}

func kernelRelease() string {
	file, err := os.Open("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	defer file.Close()
	line, _ := bufio.NewReader(file).ReadString('\n')
	return strings.TrimSpace(line)
}
