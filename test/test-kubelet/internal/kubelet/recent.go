package kubelet

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// recent reads what volumes are refreshed from: one look serves all pods of the node for a while. Without it two
// fifths of all requests to a test's API server are of pods that read the same ConfigMap.
type recent struct {
	*objects
	configMaps looks[corev1.ConfigMap]
	secrets    looks[corev1.Secret]
}

func (r *recent) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	return r.configMaps.get(namespace+"/"+name, func() (*corev1.ConfigMap, error) { return r.objects.ConfigMap(namespace, name) })
}

func (r *recent) Secret(namespace, name string) (*corev1.Secret, error) {
	return r.secrets.get(namespace+"/"+name, func() (*corev1.Secret, error) { return r.objects.Secret(namespace, name) })
}

// looks has the answers of one kind. A failure is nobody else's.
type looks[T any] struct {
	mu      sync.Mutex
	answers map[string]look[T]
}

type look[T any] struct {
	object *T
	until  time.Time
}

func (l *looks[T]) get(key string, ask func() (*T, error)) (*T, error) {
	l.mu.Lock()
	have, found := l.answers[key]
	l.mu.Unlock()
	if found && time.Now().Before(have.until) {
		return have.object, nil
	}
	object, err := ask()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answers == nil {
		l.answers = map[string]look[T]{}
	}
	l.answers[key] = look[T]{object, time.Now().Add(volumeRefresh / 2)}
	return object, nil
}
