package podspec

import (
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Objects reads what environment variables may refer to. A missing object is (nil, nil).
type Objects interface {
	ConfigMap(namespace, name string) (*corev1.ConfigMap, error)
	Secret(namespace, name string) (*corev1.Secret, error)
}

// Facts are what a pod can learn about itself only from its node.
type Facts struct {
	PodIPs, HostIPs []string
}

// Variable is one environment variable.
type Variable struct{ Name, Value string }

// Environment gives a container's variables in the order that Kubernetes defines: base (the image's and the API
// server's), then envFrom, then env, where later ones win and $(NAME) is replaced by what is before it.
func Environment(pod *corev1.Pod, container *corev1.Container, base []Variable, facts Facts, objects Objects) ([]Variable, error) {
	result := append([]Variable(nil), base...)
	for _, source := range container.EnvFrom {
		more, err := fromSource(pod.Namespace, source, objects)
		if err != nil {
			return nil, err
		}
		for _, variable := range more {
			result = set(result, variable)
		}
	}
	for _, env := range container.Env {
		value, present, err := valueOf(pod, env, result, facts, objects)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", env.Name, err)
		}
		if present {
			result = set(result, Variable{env.Name, value})
		}
	}
	return result, nil
}

func set(list []Variable, variable Variable) []Variable {
	for i := range list {
		if list[i].Name == variable.Name {
			list[i].Value = variable.Value
			return list
		}
	}
	return append(list, variable)
}

func fromSource(namespace string, source corev1.EnvFromSource, objects Objects) ([]Variable, error) {
	data := map[string]string{}
	switch {
	case source.ConfigMapRef != nil:
		object, err := objects.ConfigMap(namespace, source.ConfigMapRef.Name)
		if err != nil {
			return nil, err
		}
		if object == nil {
			return nil, missing("ConfigMap", source.ConfigMapRef.Name, source.ConfigMapRef.Optional)
		}
		data = object.Data
	case source.SecretRef != nil:
		object, err := objects.Secret(namespace, source.SecretRef.Name)
		if err != nil {
			return nil, err
		}
		if object == nil {
			return nil, missing("Secret", source.SecretRef.Name, source.SecretRef.Optional)
		}
		for key, value := range object.Data {
			data[key] = string(value)
		}
	}
	var result []Variable
	for key, value := range data {
		result = append(result, Variable{source.Prefix + key, value})
	}
	sort.Slice(result, func(i, j int) bool { return result[i].Name < result[j].Name })
	return result, nil
}

// missing is nil where the reference is optional.
func missing(kind, name string, optional *bool) error {
	if optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%s %q does not exist", kind, name)
}

func valueOf(pod *corev1.Pod, env corev1.EnvVar, sofar []Variable, facts Facts, objects Objects) (string, bool, error) {
	from := env.ValueFrom
	switch {
	case from == nil:
		return Expand(env.Value, sofar), true, nil
	case from.FieldRef != nil:
		value, err := Field(pod, from.FieldRef.FieldPath, facts)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		object, err := objects.ConfigMap(pod.Namespace, ref.Name)
		if err != nil {
			return "", false, err
		}
		if object == nil {
			return "", false, missing("ConfigMap", ref.Name, ref.Optional)
		}
		value, found := object.Data[ref.Key]
		if !found {
			return "", false, missing("key of ConfigMap "+ref.Name, ref.Key, ref.Optional)
		}
		return value, true, nil
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		object, err := objects.Secret(pod.Namespace, ref.Name)
		if err != nil {
			return "", false, err
		}
		if object == nil {
			return "", false, missing("Secret", ref.Name, ref.Optional)
		}
		value, found := object.Data[ref.Key]
		if !found {
			return "", false, missing("key of Secret "+ref.Name, ref.Key, ref.Optional)
		}
		return string(value), true, nil
	}
	return "", false, fmt.Errorf("valueFrom names no source that the test kubelet supports")
}

// Field gives the value of a fieldRef; for labels and annotations also of the whole map.
func Field(pod *corev1.Pod, path string, facts Facts) (string, error) {
	if key, ok := subscript(path, "metadata.labels"); ok {
		return pod.Labels[key], nil
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return pod.Annotations[key], nil
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return mapText(pod.Labels), nil
	case "metadata.annotations":
		return mapText(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP":
		return first(facts.PodIPs), nil
	case "status.podIPs":
		return strings.Join(facts.PodIPs, ","), nil
	case "status.hostIP":
		return first(facts.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(facts.HostIPs, ","), nil
	}
	return "", fmt.Errorf("fieldPath %q is not supported by the test kubelet", path)
}

func subscript(path, field string) (string, bool) {
	inner, ok := strings.CutPrefix(path, field+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(inner, "']")
}

func mapText(values map[string]string) string {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	var text strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&text, "%s=%q\n", key, values[key])
	}
	return text.String()
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// Expand replaces $(NAME) by the variable's value. Unknown names stay as they are, $$ stands for one dollar.
func Expand(text string, variables []Variable) string {
	var result strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			result.WriteByte(text[i])
			continue
		}
		switch text[i+1] {
		case '$':
			result.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(text[i:], ')')
			if end < 0 {
				result.WriteByte('$')
				continue
			}
			result.WriteString(lookup(text[i+2:i+end], text[i:i+end+1], variables))
			i += end
		default:
			result.WriteByte('$')
		}
	}
	return result.String()
}

func lookup(name, otherwise string, variables []Variable) string {
	for _, variable := range variables {
		if variable.Name == name {
			return variable.Value
		}
	}
	return otherwise
}

// APIServerVariables are those that every pod gets: a client inside a pod finds the API server by the first two.
func APIServerVariables(host, port string) []Variable {
	address := host
	if strings.Contains(host, ":") {
		address = "[" + host + "]"
	}
	url := "tcp://" + address + ":" + port
	prefix := "KUBERNETES_PORT_" + port + "_TCP"
	return []Variable{
		{"KUBERNETES_SERVICE_HOST", host}, {"KUBERNETES_SERVICE_PORT", port}, {"KUBERNETES_SERVICE_PORT_HTTPS", port},
		{"KUBERNETES_PORT", url}, {prefix, url}, {prefix + "_PROTO", "tcp"}, {prefix + "_PORT", port}, {prefix + "_ADDR", host},
	}
}
