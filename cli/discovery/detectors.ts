/** Every detector. Of two equally sure answers the earlier row's counts. */
import type { Evidence } from './evidence.ts'
import { antrea } from './cni/antrea.ts'
import { calico } from './cni/calico.ts'
import { cilium } from './cni/cilium.ts'
import { awsVpc, azure, gke } from './cni/cloud.ts'
import { canal, flannel } from './cni/flannel.ts'
import { openshiftSdn, ovnKubernetes } from './cni/openshift.ts'
import { kindnet, kubeRouter, weave } from './cni/others.ts'
import { clusterDns } from './detect/cluster-dns.ts'
import { controlPlaneFlags } from './detect/control-plane-flags.ts'
import { distribution } from './detect/distribution.ts'
import { earlierJoin } from './detect/earlier-join.ts'
import { kubeProxy } from './detect/kube-proxy.ts'
import { kubeadmConfig } from './detect/kubeadm-config.ts'
import { nodePodNetworks } from './detect/node-pod-cidrs.ts'
import { openshiftNetwork } from './detect/openshift.ts'
import { otherProducts } from './detect/other-products.ts'
import { platform } from './detect/platform.ts'
import { rancherServers } from './detect/rancher.ts'
import { serviceCidrObjects, serviceProbes } from './detect/service-cidrs.ts'
import type { World } from './snapshot/snapshot.ts'

export type Detector = (world: World) => readonly Evidence[]

export const DETECTORS: readonly Detector[] = [
  earlierJoin,
  distribution,
  // The API server's own word on Services comes before everything that configures it.
  serviceCidrObjects,
  serviceProbes,
  openshiftNetwork,
  // Those that replace others come before those that they replace.
  cilium,
  gke,
  canal,
  calico,
  antrea,
  kubeRouter,
  weave,
  kindnet,
  ovnKubernetes,
  openshiftSdn,
  awsVpc,
  azure,
  flannel,
  rancherServers,
  controlPlaneFlags,
  kubeadmConfig,
  kubeProxy,
  nodePodNetworks,
  clusterDns,
  otherProducts,
  platform,
]
