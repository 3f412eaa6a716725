// Package conformance runs the suite of the Multi-Cluster Services API as it is published: its specs register themselves
// when they are imported, and are all that this module has. ../run-conformance.ts starts it.
package conformance

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	_ "sigs.k8s.io/mcs-api/conformance"
)

func TestMultiClusterServices(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "Multi-Cluster Services")
}
