// Package podspec holds what a pod's specification means, without doing anything: which fields are honoured, what
// environment a container gets, what its resolver and host files say, and which rights its processes keep.
package podspec

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Unsupported lists what the test kubelet cannot honour in a pod, one sentence each, sorted. An empty list means that
// every field that is set is either honoured or listed in WithoutEffect.
//
// The check is an allow-list over the pod's JSON: a field that Kubernetes gains tomorrow is refused until somebody
// has thought about it.
func Unsupported(pod *corev1.Pod) []string {
	raw, err := json.Marshal(pod.Spec)
	if err != nil {
		return []string{fmt.Sprintf("spec cannot be written as JSON: %v", err)}
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return []string{fmt.Sprintf("spec cannot be read back from JSON: %v", err)}
	}
	var found []string
	walk("", "", tree, func(pattern, path string, value any) {
		if !covered(pattern) {
			found = append(found, fmt.Sprintf("spec.%s: %v is not supported by the test kubelet", path, value))
		}
	})
	found = append(found, unsupportedValues(&pod.Spec)...)
	sort.Strings(found)
	return found
}

// walk calls visit for each leaf that is set. The pattern is the path with indexes left out.
func walk(pattern, path string, value any, visit func(pattern, path string, value any)) {
	switch typed := value.(type) {
	case map[string]any:
		for key, child := range typed {
			walk(join(pattern, key), join(path, key), child, visit)
		}
	case []any:
		for index, child := range typed {
			walk(pattern+"[]", fmt.Sprintf("%s[%d]", path, index), child, visit)
		}
	case nil:
	case bool:
		// A false that somebody wrote down says the same as no field at all.
		if typed {
			visit(pattern, path, value)
		}
	case string:
		if typed != "" {
			visit(pattern, path, value)
		}
	default:
		visit(pattern, path, value)
	}
}

func join(parent, key string) string {
	if parent == "" {
		return key
	}
	return parent + "." + key
}

func covered(pattern string) bool {
	if rest, isInit := strings.CutPrefix(pattern, "initContainers"); isInit {
		if strings.Contains(rest, "Probe.") || strings.Contains(rest, ".lifecycle.") {
			return false
		}
		pattern = "containers" + rest
	}
	for _, list := range [][]string{Honoured, WithoutEffect} {
		for _, entry := range list {
			if prefix, whole := strings.CutSuffix(entry, "**"); whole {
				if strings.HasPrefix(pattern, prefix) || pattern == strings.TrimRight(prefix, ".[") {
					return true
				}
			} else if pattern == entry {
				return true
			}
		}
	}
	return false
}

// unsupportedValues finds fields that are honoured for some values only.
func unsupportedValues(spec *corev1.PodSpec) []string {
	var found []string
	refuse := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for i, volume := range spec.Volumes {
		if volume.EmptyDir != nil && strings.HasPrefix(string(volume.EmptyDir.Medium), "HugePages") {
			refuse("spec.volumes[%d].emptyDir.medium: %s is not supported by the test kubelet", i, volume.EmptyDir.Medium)
		}
	}
	for i := range spec.Containers {
		found = append(found, unsupportedInContainer(spec, &spec.Containers[i], fmt.Sprintf("spec.containers[%d]", i))...)
	}
	for i := range spec.InitContainers {
		found = append(found, unsupportedInContainer(spec, &spec.InitContainers[i], fmt.Sprintf("spec.initContainers[%d]", i))...)
	}
	return found
}

func unsupportedInContainer(spec *corev1.PodSpec, container *corev1.Container, at string) []string {
	var found []string
	refuse := func(format string, args ...any) { found = append(found, at+"."+fmt.Sprintf(format, args...)) }
	for i, port := range container.Ports {
		if port.HostPort != 0 && !spec.HostNetwork {
			refuse("ports[%d].hostPort: %d is supported by the test kubelet only with hostNetwork", i, port.HostPort)
		}
	}
	for i, mount := range container.VolumeMounts {
		if mount.MountPropagation != nil && *mount.MountPropagation != corev1.MountPropagationNone {
			refuse("volumeMounts[%d].mountPropagation: %s is not supported by the test kubelet", i, *mount.MountPropagation)
		}
	}
	for i, env := range container.Env {
		if env.ValueFrom == nil || env.ValueFrom.FieldRef == nil {
			continue
		}
		if _, err := Field(&corev1.Pod{}, env.ValueFrom.FieldRef.FieldPath, Facts{}); err != nil {
			refuse("env[%d].valueFrom.fieldRef: %v", i, err)
		}
	}
	security := container.SecurityContext
	if security == nil {
		return found
	}
	if security.SeccompProfile != nil && security.SeccompProfile.Type == corev1.SeccompProfileTypeLocalhost {
		refuse("securityContext.seccompProfile.type: Localhost is not supported by the test kubelet")
	}
	if _, err := capabilityMask(security.Capabilities); err != nil {
		refuse("securityContext.capabilities: %v", err)
	}
	return found
}
