package kubelet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"sort"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sealane.io/test-kubelet/internal/images"
	"sealane.io/test-kubelet/internal/podspec"
	"sealane.io/test-kubelet/internal/sandbox"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// plan says how a container's program is started.
func (worker *worker) plan(container *containerState) (*sandbox.Plan, error) {
	pod, spec := worker.latest(), container.spec
	image, err := worker.kubelet.Images.Find(spec.Image)
	if err != nil {
		return nil, err
	}
	identity, err := podspec.IdentityOf(pod, spec, image.UID, image.GID)
	if err != nil {
		return nil, err
	}
	sources, err := worker.makeVolumes()
	if err != nil {
		return nil, err
	}
	binds, err := worker.binds(spec, sources)
	if err != nil {
		return nil, err
	}
	base, err := worker.baseEnvironment(image)
	if err != nil {
		return nil, err
	}
	environment, err := podspec.Environment(pod, spec, base, worker.facts(), worker.kubelet.objects)
	if err != nil {
		return nil, err
	}
	argv := commandLine(image, spec, environment)
	if len(argv) == 0 {
		return nil, fmt.Errorf("neither the container nor its image %s says what to run", spec.Image)
	}
	at, err := ensureFolder(filepath.Join(worker.folder, "root", spec.Name))
	if err != nil {
		return nil, err
	}
	folder := firstOf(spec.WorkingDir, image.WorkingDir, "/")
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", pod.UID, spec.Name, container.restarts))
	worker.state.update(func() { container.id = "test-kubelet://" + hex.EncodeToString(sum[:16]) })
	return &sandbox.Plan{
		RootFS: &sandbox.RootFS{
			At: at, Paths: image.Paths, Devices: image.Devices, Binds: binds,
			Privileged: identity.Privileged, ReadOnly: identity.ReadOnlyRootFS,
		},
		Hostname: podspec.Hostname(pod, worker.kubelet.Node), Argv: argv, Env: environ(environment), Dir: folder,
		UID: identity.UID, GID: identity.GID, Groups: identity.Groups,
		Capabilities: identity.Capabilities, NoNewPrivs: identity.NoNewPrivs,
	}, nil
}

// commandLine: the container's command replaces the image's entrypoint and, without args, also its arguments.
func commandLine(image images.Image, spec *corev1.Container, environment []podspec.Variable) []string {
	command, arguments := spec.Command, spec.Args
	if len(command) == 0 {
		command = image.Entrypoint
		if len(arguments) == 0 {
			arguments = image.Cmd
		}
	}
	var argv []string
	for _, text := range append(append([]string(nil), command...), arguments...) {
		argv = append(argv, podspec.Expand(text, environment))
	}
	return argv
}

func (worker *worker) baseEnvironment(image images.Image) ([]podspec.Variable, error) {
	base := []podspec.Variable{
		{Name: "PATH", Value: defaultPath}, {Name: "HOME", Value: "/root"},
		{Name: "HOSTNAME", Value: podspec.Hostname(worker.latest(), worker.kubelet.Node)},
	}
	names := make([]string, 0, len(image.Env))
	for name := range image.Env {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		base = append(base, podspec.Variable{Name: name, Value: image.Env[name]})
	}
	host, port := worker.kubelet.APIServer.Name, worker.kubelet.APIServer.Value
	if host == "" {
		ctx, cancel := context.WithTimeout(context.Background(), objectTimeout)
		defer cancel()
		service, err := worker.kubelet.Client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("the API server's own Service: %w", err)
		}
		host, port = service.Spec.ClusterIP, strconv.Itoa(int(service.Spec.Ports[0].Port))
	}
	return append(base, podspec.APIServerVariables(host, port)...), nil
}

func environ(variables []podspec.Variable) []string {
	result := make([]string, 0, len(variables))
	for _, variable := range variables {
		result = append(result, variable.Name+"="+variable.Value)
	}
	return result
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
