package volumes

import (
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

	"sealane.io/test-kubelet/internal/podspec"
)

const defaultMode = 0o644

// files gives the content of a volume that is made of objects.
func (maker *Maker) files(pod *corev1.Pod, volume *corev1.Volume, facts podspec.Facts) (map[string]File, error) {
	files := map[string]File{}
	switch {
	case volume.ConfigMap != nil:
		source := volume.ConfigMap
		mode := modeOf(source.DefaultMode, defaultMode)
		return files, maker.addConfigMap(files, pod, source.Name, source.Items, source.Optional, mode)
	case volume.Secret != nil:
		source := volume.Secret
		mode := modeOf(source.DefaultMode, defaultMode)
		return files, maker.addSecret(files, pod, source.SecretName, source.Items, source.Optional, mode)
	case volume.DownwardAPI != nil:
		mode := modeOf(volume.DownwardAPI.DefaultMode, defaultMode)
		return files, addFields(files, pod, volume.DownwardAPI.Items, mode, facts)
	case volume.Projected != nil:
		return files, maker.addProjected(files, pod, volume.Projected, facts)
	}
	return nil, fmt.Errorf("its type is not supported by the test kubelet")
}

func (maker *Maker) addProjected(files map[string]File, pod *corev1.Pod, projected *corev1.ProjectedVolumeSource, facts podspec.Facts) error {
	mode := modeOf(projected.DefaultMode, defaultMode)
	for _, source := range projected.Sources {
		var err error
		switch {
		case source.ServiceAccountToken != nil:
			err = maker.addToken(files, pod, source.ServiceAccountToken)
		case source.ConfigMap != nil:
			err = maker.addConfigMap(files, pod, source.ConfigMap.Name, source.ConfigMap.Items, source.ConfigMap.Optional, mode)
		case source.Secret != nil:
			err = maker.addSecret(files, pod, source.Secret.Name, source.Secret.Items, source.Secret.Optional, mode)
		case source.DownwardAPI != nil:
			err = addFields(files, pod, source.DownwardAPI.Items, mode, facts)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (maker *Maker) addToken(files map[string]File, pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection) error {
	seconds := int64(3600)
	if source.ExpirationSeconds != nil {
		seconds = *source.ExpirationSeconds
	}
	token, err := maker.Objects.Token(pod, source.Audience, seconds)
	if err != nil {
		return fmt.Errorf("token of service account %s: %w", pod.Spec.ServiceAccountName, err)
	}
	// As a kubelet does: only root reads it, unless the pod runs as one other user or has a group for its files.
	mode := os.FileMode(0o600)
	if groupOf(pod) == 0 && !runsAsRootOnly(pod) {
		mode = 0o644
	}
	files[source.Path] = File{Data: []byte(token), Mode: mode}
	return nil
}

func runsAsRootOnly(pod *corev1.Pod) bool {
	if context := pod.Spec.SecurityContext; context != nil && context.RunAsUser != nil && *context.RunAsUser != 0 {
		return false
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range list {
			context := container.SecurityContext
			if context != nil && context.RunAsUser != nil && *context.RunAsUser != 0 {
				return false
			}
		}
	}
	return true
}

func (maker *Maker) addConfigMap(files map[string]File, pod *corev1.Pod, name string, items []corev1.KeyToPath, optional *bool, mode os.FileMode) error {
	object, err := maker.Objects.ConfigMap(pod.Namespace, name)
	if err != nil {
		return err
	}
	data := map[string][]byte{}
	if object != nil {
		for key, value := range object.Data {
			data[key] = []byte(value)
		}
		for key, value := range object.BinaryData {
			data[key] = value
		}
	}
	return addKeys(files, "ConfigMap", name, object != nil, data, items, optional, mode)
}

func (maker *Maker) addSecret(files map[string]File, pod *corev1.Pod, name string, items []corev1.KeyToPath, optional *bool, mode os.FileMode) error {
	object, err := maker.Objects.Secret(pod.Namespace, name)
	if err != nil {
		return err
	}
	var data map[string][]byte
	if object != nil {
		data = object.Data
	}
	return addKeys(files, "Secret", name, object != nil, data, items, optional, mode)
}

func addKeys(files map[string]File, kind, name string, present bool, data map[string][]byte, items []corev1.KeyToPath, optional *bool, mode os.FileMode) error {
	mayMiss := optional != nil && *optional
	if !present {
		if mayMiss {
			return nil
		}
		return fmt.Errorf("%s %q does not exist", kind, name)
	}
	if len(items) == 0 {
		for key, value := range data {
			files[key] = File{Data: value, Mode: mode}
		}
		return nil
	}
	for _, item := range items {
		value, found := data[item.Key]
		if found {
			files[item.Path] = File{Data: value, Mode: modeOf(item.Mode, mode)}
		} else if !mayMiss {
			return fmt.Errorf("%s %q has no key %q", kind, name, item.Key)
		}
	}
	return nil
}

func addFields(files map[string]File, pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode os.FileMode, facts podspec.Facts) error {
	for _, item := range items {
		if item.FieldRef == nil {
			return fmt.Errorf("downwardAPI %s: only fieldRef is supported by the test kubelet", item.Path)
		}
		value, err := podspec.Field(pod, item.FieldRef.FieldPath, facts)
		if err != nil {
			return err
		}
		files[item.Path] = File{Data: []byte(value), Mode: modeOf(item.Mode, mode)}
	}
	return nil
}

func modeOf(mode *int32, otherwise os.FileMode) os.FileMode {
	if mode == nil {
		return otherwise
	}
	return os.FileMode(*mode) & 0o777
}
