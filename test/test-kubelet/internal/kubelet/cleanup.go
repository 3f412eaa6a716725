package kubelet

import (
	"os"
	"path/filepath"

	"sealane.io/test-kubelet/internal/network"
)

// Cleanup removes everything that this node has made on the machine. All pods have ended.
func (kubelet *Kubelet) Cleanup() {
	if removed, err := network.Sweep(kubelet.Prefix); err != nil {
		kubelet.Log.Warn("network namespaces were left behind", "error", err)
	} else if len(removed) > 0 {
		kubelet.Log.Info("network namespaces removed", "names", removed)
	}
	if kubelet.bridge != nil {
		kubelet.bridge.Remove()
	}
	for _, folder := range []string{kubelet.podsFolder(), filepath.Join(kubelet.StateDir, "hostpath", kubelet.Node)} {
		if err := os.RemoveAll(folder); err != nil {
			kubelet.Log.Warn("files were left behind", "folder", folder, "error", err)
		}
	}
}
