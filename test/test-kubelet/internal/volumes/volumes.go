package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sealane.io/test-kubelet/internal/podspec"
)

// Objects is what volumes are made of. A missing object is (nil, nil).
type Objects interface {
	podspec.Objects
	// Token asks for a token of the pod's service account, bound to the pod.
	Token(pod *corev1.Pod, audience string, seconds int64) (string, error)
	// ClaimFolder gives the folder behind a bound PersistentVolumeClaim.
	ClaimFolder(namespace, claim string) (string, error)
}

// Maker makes volumes below a folder.
type Maker struct {
	Objects Objects
	// HostRoot stands for the machine's root in hostPath volumes, so that nodes on one machine do not share files.
	HostRoot string
	// Shared lists paths that are the machine's own also in hostPath volumes, with all below them.
	Shared []string
}

// Prepare makes or refreshes all volumes of a pod below folder and gives the source folder or file of each by name.
func (maker *Maker) Prepare(pod *corev1.Pod, folder string, facts podspec.Facts) (map[string]string, error) {
	sources := map[string]string{}
	var failed []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		source, err := maker.prepareOne(pod, volume, filepath.Join(folder, volume.Name), facts)
		if err != nil {
			failed = append(failed, fmt.Errorf("volume %s: %w", volume.Name, err))
			continue
		}
		sources[volume.Name] = source
	}
	return sources, errors.Join(failed...)
}

func (maker *Maker) prepareOne(pod *corev1.Pod, volume *corev1.Volume, folder string, facts podspec.Facts) (string, error) {
	switch {
	case volume.HostPath != nil:
		return maker.hostPath(volume.HostPath)
	case volume.PersistentVolumeClaim != nil:
		source, err := maker.Objects.ClaimFolder(pod.Namespace, volume.PersistentVolumeClaim.ClaimName)
		if err != nil {
			return "", err
		}
		return source, giveToGroup(source, groupOf(pod), 0o775)
	case volume.EmptyDir != nil:
		if _, err := os.Stat(folder); err == nil {
			return folder, nil
		}
		if err := os.MkdirAll(folder, 0o777); err != nil {
			return "", err
		}
		return folder, giveToGroup(folder, groupOf(pod), 0o777)
	}
	files, err := maker.files(pod, volume, facts)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	_, err = writePayload(folder, files, groupOf(pod))
	return folder, err
}

func groupOf(pod *corev1.Pod) int {
	if context := pod.Spec.SecurityContext; context != nil && context.FSGroup != nil {
		return int(*context.FSGroup)
	}
	return 0
}

func giveToGroup(folder string, group int, mode os.FileMode) error {
	if group != 0 {
		if err := os.Chown(folder, -1, group); err != nil {
			return err
		}
		// New files belong to the group too.
		mode |= os.ModeSetgid
	}
	return os.Chmod(folder, mode)
}

// IsRefreshed says whether a pod has volumes that follow objects.
func IsRefreshed(pod *corev1.Pod) bool {
	for _, volume := range pod.Spec.Volumes {
		if volume.ConfigMap != nil || volume.Secret != nil || volume.Projected != nil || volume.DownwardAPI != nil {
			return true
		}
	}
	return false
}

func (maker *Maker) hostPath(source *corev1.HostPathVolumeSource) (string, error) {
	path := filepath.Clean("/" + source.Path)
	if !maker.isShared(path) {
		path = filepath.Join(maker.HostRoot, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
	}
	kind := corev1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	info, err := os.Stat(path)
	switch {
	case err == nil:
		return path, checkHostPath(source.Path, kind, info.Mode())
	case kind == corev1.HostPathDirectoryOrCreate, kind == corev1.HostPathUnset:
		return path, os.MkdirAll(path, 0o755)
	case kind == corev1.HostPathFileOrCreate:
		return path, os.WriteFile(path, nil, 0o644)
	default:
		return "", fmt.Errorf("hostPath %s: there is no such %s on this node", source.Path, kind)
	}
}

func checkHostPath(path string, kind corev1.HostPathType, mode os.FileMode) error {
	fits := true
	switch kind {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		fits = mode.IsDir()
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		fits = mode.IsRegular()
	case corev1.HostPathSocket:
		fits = mode&os.ModeSocket != 0
	case corev1.HostPathCharDev:
		fits = mode&os.ModeCharDevice != 0
	case corev1.HostPathBlockDev:
		fits = mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0
	}
	if !fits {
		return fmt.Errorf("hostPath %s is not a %s", path, kind)
	}
	return nil
}

func (maker *Maker) isShared(path string) bool {
	for _, shared := range maker.Shared {
		if path == shared || strings.HasPrefix(path, strings.TrimSuffix(shared, "/")+"/") {
			return true
		}
	}
	return false
}
