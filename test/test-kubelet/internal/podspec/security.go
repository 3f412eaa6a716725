package podspec

import (
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Identity is what a container's processes are and may do.
type Identity struct {
	UID, GID int
	Groups   []int
	// Capabilities as a bit mask: the bounding set, and what a process of user 0 holds. Other users hold none after
	// exec, exactly as on a real node (Kubernetes sets no ambient capabilities).
	Capabilities   uint64
	Privileged     bool
	NoNewPrivs     bool
	ReadOnlyRootFS bool
}

// capabilityNames in the kernel's order (linux/capability.h); the index is the number.
var capabilityNames = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
	LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO
	SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE
	AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF
	CHECKPOINT_RESTORE`)

// What a container runtime leaves to a container that asks for nothing.
var defaultCapabilities = strings.Fields(`AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE
	NET_RAW SETFCAP SETGID SETPCAP SETUID SYS_CHROOT`)

// AllCapabilities is the mask of every capability this test kubelet knows.
var AllCapabilities = uint64(1)<<len(capabilityNames) - 1

func capabilityBit(name string) (uint64, error) {
	plain := strings.TrimPrefix(strings.ToUpper(name), "CAP_")
	if plain == "ALL" {
		return AllCapabilities, nil
	}
	for number, known := range capabilityNames {
		if known == plain {
			return 1 << number, nil
		}
	}
	return 0, fmt.Errorf("%q is not a capability of Linux", name)
}

func capabilityMask(wanted *corev1.Capabilities) (uint64, error) {
	var mask uint64
	for _, name := range defaultCapabilities {
		bit, _ := capabilityBit(name)
		mask |= bit
	}
	if wanted == nil {
		return mask, nil
	}
	for _, name := range wanted.Drop {
		bit, err := capabilityBit(string(name))
		if err != nil {
			return 0, err
		}
		mask &^= bit
	}
	for _, name := range wanted.Add {
		bit, err := capabilityBit(string(name))
		if err != nil {
			return 0, err
		}
		mask |= bit
	}
	return mask, nil
}

// IdentityOf merges the pod's and the container's security context over the image's user. It fails where a kubelet
// would refuse to start the container.
func IdentityOf(pod *corev1.Pod, container *corev1.Container, imageUID, imageGID int) (Identity, error) {
	identity := Identity{UID: imageUID, GID: imageGID}
	nonRoot := false
	if outer := pod.Spec.SecurityContext; outer != nil {
		overlay(&identity.UID, outer.RunAsUser)
		overlay(&identity.GID, outer.RunAsGroup)
		nonRoot = outer.RunAsNonRoot != nil && *outer.RunAsNonRoot
		for _, group := range outer.SupplementalGroups {
			identity.Groups = append(identity.Groups, int(group))
		}
		if outer.FSGroup != nil {
			identity.Groups = append(identity.Groups, int(*outer.FSGroup))
		}
		sort.Ints(identity.Groups)
	}
	inner := container.SecurityContext
	if inner == nil {
		inner = &corev1.SecurityContext{}
	}
	overlay(&identity.UID, inner.RunAsUser)
	overlay(&identity.GID, inner.RunAsGroup)
	if inner.RunAsNonRoot != nil {
		nonRoot = *inner.RunAsNonRoot
	}
	if nonRoot && identity.UID == 0 {
		return identity, fmt.Errorf("container %s has runAsNonRoot and would run as user 0: set runAsUser", container.Name)
	}
	identity.Privileged = inner.Privileged != nil && *inner.Privileged
	identity.ReadOnlyRootFS = inner.ReadOnlyRootFilesystem != nil && *inner.ReadOnlyRootFilesystem
	identity.NoNewPrivs = inner.AllowPrivilegeEscalation != nil && !*inner.AllowPrivilegeEscalation
	mask, err := capabilityMask(inner.Capabilities)
	if identity.Privileged {
		mask = AllCapabilities
	}
	identity.Capabilities = mask
	return identity, err
}

func overlay(target *int, value *int64) {
	if value != nil {
		*target = int(*value)
	}
}
