package podspec

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pointer[T any](value T) *T { return &value }

func TestUnsupported(t *testing.T) {
	container := corev1.Container{Name: "main", Image: "x"}
	for _, test := range []struct {
		name   string
		change func(spec *corev1.PodSpec)
		want   string
	}{
		{"nothing special", func(*corev1.PodSpec) {}, ""},
		{"a false says nothing", func(spec *corev1.PodSpec) { spec.ShareProcessNamespace = pointer(false) }, ""},
		{
			"without effect", func(spec *corev1.PodSpec) {
				spec.PriorityClassName = "system-node-critical"
				spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
				spec.Containers[0].ImagePullPolicy = corev1.PullNever
			}, "",
		},
		{
			"process namespace of the node", func(spec *corev1.PodSpec) { spec.HostPID = true },
			"spec.hostPID: true is not supported by the test kubelet",
		},
		{
			"gRPC probe", func(spec *corev1.PodSpec) {
				spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 9}}}
			}, "spec.containers[0].livenessProbe.grpc.port: 9 is not supported by the test kubelet",
		},
		{
			"sidecar", func(spec *corev1.PodSpec) {
				spec.InitContainers = []corev1.Container{{Name: "a", RestartPolicy: pointer(corev1.ContainerRestartPolicyAlways)}}
			}, "spec.initContainers[0].restartPolicy: Always is not supported by the test kubelet",
		},
		{
			"propagated mount", func(spec *corev1.PodSpec) {
				spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{
					Name: "a", MountPath: "/a", MountPropagation: pointer(corev1.MountPropagationBidirectional),
				}}
			}, "spec.containers[0].volumeMounts[0].mountPropagation: Bidirectional is not supported by the test kubelet",
		},
		{
			"port of the node", func(spec *corev1.PodSpec) {
				spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
			}, "spec.containers[0].ports[0].hostPort: 80 is supported by the test kubelet only with hostNetwork",
		},
		{
			"port of the node, on its network", func(spec *corev1.PodSpec) {
				spec.HostNetwork = true
				spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
			}, "",
		},
		{
			"unknown field", func(spec *corev1.PodSpec) {
				spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.phase"},
				}}}
			}, `spec.containers[0].env[0].valueFrom.fieldRef: fieldPath "status.phase" is not supported by the test kubelet`,
		},
		{
			"unknown capability", func(spec *corev1.PodSpec) {
				spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"FLY"}}}
			}, `spec.containers[0].securityContext.capabilities: "FLY" is not a capability of Linux`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}
			test.change(&pod.Spec)
			if got := strings.Join(Unsupported(pod), "; "); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestResolvConf(t *testing.T) {
	dns := DNS{ClusterServers: []string{"10.43.0.10"}, ClusterDomain: "cluster.local", NodeFile: "# x\nnameserver 192.0.2.53\nsearch lab\noptions edns0\n"}
	cluster := "nameserver 10.43.0.10\nsearch shop.svc.cluster.local svc.cluster.local cluster.local lab\noptions ndots:5\n"
	node := "nameserver 192.0.2.53\nsearch lab\noptions edns0\n"
	for _, test := range []struct {
		name string
		spec corev1.PodSpec
		want string
	}{
		{"ClusterFirst", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst}, cluster},
		{"ClusterFirst on the node's network is Default", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst, HostNetwork: true}, node},
		{"ClusterFirstWithHostNet", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirstWithHostNet, HostNetwork: true}, cluster},
		{"Default", corev1.PodSpec{DNSPolicy: corev1.DNSDefault}, node},
		{
			"None", corev1.PodSpec{DNSPolicy: corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{
				Nameservers: []string{"192.0.2.1"}, Searches: []string{"a"},
			}}, "nameserver 192.0.2.1\nsearch a\n",
		},
		{
			"an option is replaced", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst, DNSConfig: &corev1.PodDNSConfig{
				Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: pointer("2")}, {Name: "edns0"}},
			}}, strings.Replace(cluster, "ndots:5", "ndots:2 edns0", 1),
		},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: test.spec}
		if got := ResolvConf(pod, dns); got != test.want {
			t.Errorf("%s: got\n%swant\n%s", test.name, got, test.want)
		}
	}
}

func TestHostsFile(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "shop"}}
	pod.Spec.Hostname, pod.Spec.Subdomain = "web-0", "web"
	pod.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"a", "b"}}}
	want := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"10.42.0.5\tweb-0.web.shop.svc.cluster.local\tweb-0\n192.0.2.9\ta\tb\n"
	if got := HostsFile(pod, "n1", "cluster.local", []string{"10.42.0.5"}); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestExpand(t *testing.T) {
	variables := []Variable{{"A", "1"}, {"B", "$(A)"}}
	for text, want := range map[string]string{
		"$(A)": "1", "x$(A)y$(B)": "x1y$(A)", "$(NONE)": "$(NONE)", "$$(A)": "$(A)", "$": "$", "$A": "$A", "$(A": "$(A",
	} {
		if got := Expand(text, variables); got != want {
			t.Errorf("Expand(%q) = %q, want %q", text, got, want)
		}
	}
}

type fixedObjects struct{}

func (fixedObjects) ConfigMap(_, name string) (*corev1.ConfigMap, error) {
	if name != "settings" {
		return nil, nil
	}
	return &corev1.ConfigMap{Data: map[string]string{"level": "debug", "site": "milano"}}, nil
}

func (fixedObjects) Secret(_, name string) (*corev1.Secret, error) {
	if name != "keys" {
		return nil, nil
	}
	return &corev1.Secret{Data: map[string][]byte{"key": []byte("k")}}, nil
}

func TestEnvironment(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop", Labels: map[string]string{"app": "web"}}}
	settings := corev1.LocalObjectReference{Name: "settings"}
	container := &corev1.Container{
		EnvFrom: []corev1.EnvFromSource{{Prefix: "C_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: settings}}},
		Env: []corev1.EnvVar{
			{Name: "IPS", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIPs"}}},
			{Name: "APP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}}},
			{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "key",
			}}},
			{Name: "MAYBE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: settings, Key: "none", Optional: pointer(true),
			}}},
			{Name: "C_site", Value: "$(APP) on $(C_site)"},
		},
	}
	got, err := Environment(pod, container, []Variable{{"PATH", "/bin"}}, Facts{PodIPs: []string{"10.42.0.5", "fd00::5"}}, fixedObjects{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Variable{{"PATH", "/bin"}, {"C_level", "debug"}, {"C_site", "web on milano"}, {"IPS", "10.42.0.5,fd00::5"}, {"APP", "web"}, {"KEY", "k"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	container.Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "gone"}, Key: "x",
	}}}}
	if _, err := Environment(pod, container, nil, Facts{}, fixedObjects{}); err == nil || err.Error() != `env X: ConfigMap "gone" does not exist` {
		t.Errorf("got %v", err)
	}
}

func TestIdentityOf(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: pointer(true), FSGroup: pointer(int64(7))}
	container := &corev1.Container{Name: "main"}
	if _, err := IdentityOf(pod, container, 0, 0); err == nil {
		t.Error("runAsNonRoot with an image of user 0 was accepted")
	}
	container.SecurityContext = &corev1.SecurityContext{
		RunAsUser: pointer(int64(1000)), AllowPrivilegeEscalation: pointer(false), ReadOnlyRootFilesystem: pointer(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN", "CAP_NET_RAW"}},
	}
	got, err := IdentityOf(pod, container, 0, 0)
	want := Identity{UID: 1000, Groups: []int{7}, Capabilities: 1<<12 | 1<<13, NoNewPrivs: true, ReadOnlyRootFS: true}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}
