// Command kubectl is the kubectl of k8s.io/kubectl, whose main package is part of k8s.io/kubernetes. Tests use it as
// people and GitOps tools do: apply and diff.
package main

import (
	"fmt"
	"os"

	"k8s.io/kubectl/pkg/cmd"
)

func main() {
	if err := cmd.NewDefaultKubectlCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
