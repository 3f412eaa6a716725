package sandbox

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// giveUpRights leaves the thread with the plan's user, groups and capabilities.
func giveUpRights(plan *Plan) error {
	// The bounding set first: emptying it needs CAP_SETPCAP, which may be what goes.
	for number := 0; number <= unix.CAP_LAST_CAP; number++ {
		if plan.Capabilities&(1<<number) != 0 {
			continue
		}
		// Capabilities that this kernel does not know cannot be dropped and need not be.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("drop capability %d: %w", number, err)
		}
	}
	if err := syscall.Setgroups(plan.Groups); err != nil {
		return fmt.Errorf("set groups: %w", err)
	}
	if err := syscall.Setgid(plan.GID); err != nil {
		return fmt.Errorf("set group %d: %w", plan.GID, err)
	}
	if err := syscall.Setuid(plan.UID); err != nil {
		return fmt.Errorf("set user %d: %w", plan.UID, err)
	}
	if plan.UID == 0 {
		if err := keepOnly(plan.Capabilities); err != nil {
			return err
		}
	}
	if plan.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
	}
	// A change of user clears the parent-death signal, and with it the promise that nothing outlives the test kubelet.
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}

// keepOnly sets permitted and effective. What user 0 gets at exec is cut by the bounding set to the same.
func keepOnly(mask uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for half := range have {
		part := uint32(mask >> (32 * half))
		// One cannot hold what the test kubelet itself does not hold.
		have[half].Permitted &= part
		have[half].Effective = have[half].Permitted
		have[half].Inheritable = 0
	}
	if err := unix.Capset(&header, &have[0]); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	return nil
}
