package kubelet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sealane.io/test-kubelet/internal/network"
	"sealane.io/test-kubelet/internal/podspec"
	"sealane.io/test-kubelet/internal/sandbox"
	"sealane.io/test-kubelet/internal/volumes"
)

// How soon a changed ConfigMap or Secret, or a renewed token, is seen in a volume. A real kubelet takes a minute.
const volumeRefresh = 4 * time.Second

func (worker *worker) facts() podspec.Facts {
	facts := podspec.Facts{HostIPs: worker.kubelet.NodeIPs}
	worker.state.read(func() { facts.PodIPs = worker.state.ips })
	return facts
}

func (worker *worker) netns() string {
	if pod := worker.latest(); !pod.Spec.HostNetwork {
		return filepath.Join(network.NamespaceFolder, worker.kubelet.bridge.NamespaceOf(string(pod.UID)))
	}
	return ""
}

func (worker *worker) makeVolumes() (map[string]string, error) {
	return worker.volumesBy(worker.kubelet.volumes)
}

func (worker *worker) volumesBy(maker *volumes.Maker) (map[string]string, error) {
	return maker.Prepare(worker.latest(), filepath.Join(worker.folder, "volumes"), worker.facts())
}

func (worker *worker) refreshVolumes(ctx context.Context) {
	if !volumes.IsRefreshed(worker.latest()) {
		return
	}
	for sleep(ctx, volumeRefresh) {
		// An API server that is away for a while costs nothing: the files stay.
		if _, err := worker.volumesBy(worker.kubelet.refreshed); err != nil {
			worker.kubelet.Log.Warn("volumes were not refreshed", "pod", worker.latest().Name, "error", err)
		}
	}
}

// writeEtc makes the files that every container of the pod sees in /etc.
func (worker *worker) writeEtc() error {
	pod, kubelet := worker.latest(), worker.kubelet
	folder, err := ensureFolder(filepath.Join(worker.folder, "etc"))
	if err != nil {
		return err
	}
	files := map[string]string{
		"resolv.conf": podspec.ResolvConf(pod, kubelet.DNS),
		"hosts":       podspec.HostsFile(pod, kubelet.Node, kubelet.DNS.ClusterDomain, worker.facts().PodIPs),
		"hostname":    podspec.Hostname(pod, kubelet.Node) + "\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// binds gives all files and folders that a container sees beside its programs.
func (worker *worker) binds(container *corev1.Container, sources map[string]string) ([]sandbox.Bind, error) {
	var binds []sandbox.Bind
	for _, name := range []string{"resolv.conf", "hosts", "hostname"} {
		binds = append(binds, sandbox.Bind{Source: filepath.Join(worker.folder, "etc", name), Target: "/etc/" + name})
	}
	for _, mount := range container.VolumeMounts {
		source, found := sources[mount.Name]
		if !found {
			return nil, fmt.Errorf("volumeMount %s: there is no such volume", mount.Name)
		}
		if mount.SubPath != "" {
			if !filepath.IsLocal(mount.SubPath) {
				return nil, fmt.Errorf("volumeMount %s: subPath %q leads out of the volume", mount.Name, mount.SubPath)
			}
			source = filepath.Join(source, mount.SubPath)
			if _, err := os.Stat(source); os.IsNotExist(err) {
				if _, err := ensureFolder(source); err != nil {
					return nil, err
				}
			}
		}
		binds = append(binds, sandbox.Bind{Source: source, Target: mount.MountPath, ReadOnly: mount.ReadOnly || worker.isReadOnly(mount.Name)})
	}
	return binds, nil
}

// isReadOnly is for volumes whose files follow objects, and claims that say so.
func (worker *worker) isReadOnly(name string) bool {
	for _, volume := range worker.latest().Spec.Volumes {
		if volume.Name == name {
			claim := volume.PersistentVolumeClaim
			return volume.ConfigMap != nil || volume.Secret != nil || volume.Projected != nil || volume.DownwardAPI != nil ||
				claim != nil && claim.ReadOnly
		}
	}
	return false
}

// setSysctls sets the pod's own values in its network namespace.
func setSysctls(netns string, security *corev1.PodSecurityContext) error {
	if security == nil {
		return nil
	}
	for _, sysctl := range security.Sysctls {
		if !strings.HasPrefix(sysctl.Name, "net.") {
			return fmt.Errorf("sysctl %s is not supported by the test kubelet: only net.* is", sysctl.Name)
		}
		path := "/proc/sys/" + strings.ReplaceAll(sysctl.Name, ".", "/")
		command := exec.Command("ip", "netns", "exec", filepath.Base(netns), "tee", path)
		command.Stdin = strings.NewReader(sysctl.Value)
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("sysctl %s: %w: %s", sysctl.Name, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
