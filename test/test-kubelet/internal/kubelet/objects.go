package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// objects reads what pods refer to, one object at a time: a node may not list other namespaces' secrets.
type objects struct {
	client   kubernetes.Interface
	hostRoot string

	mu     sync.Mutex
	tokens map[tokenKey]token
}

type tokenKey struct {
	pod      types.UID
	audience string
}

type token struct {
	text  string
	renew time.Time
}

const objectTimeout = 10 * time.Second

func (o *objects) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(context.Background(), objectTimeout)
	defer cancel()
	return orNil(o.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{}))
}

func (o *objects) Secret(namespace, name string) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(context.Background(), objectTimeout)
	defer cancel()
	return orNil(o.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{}))
}

// orNil gives nil for an object that does not exist.
func orNil[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return object, nil
}

// Token gives the pod's token for an audience, a new one when four fifths of its life are over.
func (o *objects) Token(pod *corev1.Pod, audience string, seconds int64) (string, error) {
	key := tokenKey{pod.UID, audience}
	o.mu.Lock()
	have, found := o.tokens[key]
	o.mu.Unlock()
	if found && time.Now().Before(have.renew) {
		return have.text, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	ctx, cancel := context.WithTimeout(context.Background(), objectTimeout)
	defer cancel()
	accounts := o.client.CoreV1().ServiceAccounts(pod.Namespace)
	answer, err := accounts.CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	life := time.Until(answer.Status.ExpirationTimestamp.Time)
	o.mu.Lock()
	o.tokens[key] = token{answer.Status.Token, time.Now().Add(life * 4 / 5)}
	o.mu.Unlock()
	return answer.Status.Token, nil
}

// forget drops the tokens of a pod that is gone.
func (o *objects) forget(pod types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.tokens {
		if key.pod == pod {
			delete(o.tokens, key)
		}
	}
}

// ClaimFolder gives the folder of a bound claim. Only volumes that are a folder of the node are supported.
func (o *objects) ClaimFolder(namespace, name string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), objectTimeout)
	defer cancel()
	claim, err := o.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return "", fmt.Errorf("PersistentVolumeClaim %q is not bound", name)
	}
	volume, err := o.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	path := ""
	switch {
	case volume.Spec.HostPath != nil:
		path = volume.Spec.HostPath.Path
	case volume.Spec.Local != nil:
		path = volume.Spec.Local.Path
	default:
		return "", fmt.Errorf("PersistentVolume %q is neither hostPath nor local: not supported by the test kubelet", volume.Name)
	}
	return ensureFolder(filepath.Join(o.hostRoot, filepath.Clean("/"+path)))
}
