/** The objects that detectors look at: a table, each row one request. */
import { SYSTEM_NAMESPACE } from '../../../model/spec-constants.ts'

export interface Wanted {
  readonly apiVersion: string
  readonly kind: string
  /** One object; without it all of the kind. */
  readonly name?: string
  readonly namespace?: string
  readonly labelSelector?: string
  /** Asked for only where this CRD exists. */
  readonly crd?: string
  /** Findings that rest on it. Without any, not being allowed to read it is not worth telling. */
  readonly for: readonly string[]
}

export const MOST_OBJECTS = 2000

const PODS = 'pod CIDRs'
const SERVICES = 'service CIDRs'
const CNI = 'CNI'
const PROXY = 'service proxy'
const DNS = 'cluster DNS'

function configMap(path: string, ...found: readonly string[]): Wanted {
  const [namespace = '', name = ''] = path.split('/')
  return { apiVersion: 'v1', kind: 'ConfigMap', name, namespace, for: found }
}

function custom(apiVersion: string, kind: string, plural: string, found: readonly string[], name?: string): Wanted {
  const crd = `${plural}.${apiVersion.split('/')[0] ?? ''}`
  return { apiVersion, kind, crd, for: found, ...(name === undefined ? {} : { name }) }
}

export const WANTED: readonly Wanted[] = [
  { apiVersion: 'v1', kind: 'Node', for: [PODS, CNI, 'gateways'] },
  { apiVersion: 'v1', kind: 'Pod', namespace: 'kube-system', for: [PODS, SERVICES, PROXY] },
  { apiVersion: 'apps/v1', kind: 'DaemonSet', for: [CNI, PROXY] },
  { apiVersion: 'apps/v1', kind: 'Deployment', name: 'kube-dns', namespace: 'kube-system', for: [DNS] },
  { apiVersion: 'networking.k8s.io/v1', kind: 'ServiceCIDR', for: [SERVICES] },
  ...[
    'kube-system/kube-dns',
    'kube-system/rke2-coredns-rke2-coredns',
    'kube-system/coredns',
    'openshift-dns/dns-default',
  ].map((path): Wanted => {
    const [namespace = '', name = ''] = path.split('/')
    return { apiVersion: 'v1', kind: 'Service', name, namespace, for: [DNS] }
  }),
  configMap('kube-system/kubeadm-config', PODS, SERVICES, 'distribution'),
  configMap('kube-system/kube-proxy', PROXY),
  configMap('kube-system/kube-proxy-config', PROXY),
  configMap('kube-system/coredns', DNS),
  configMap('kube-system/coredns-custom', DNS),
  configMap('kube-system/rke2-coredns-rke2-coredns', DNS),
  configMap('kube-system/cilium-config', CNI),
  configMap('kube-system/calico-config', CNI),
  configMap('kube-system/canal-config', CNI),
  configMap('kube-system/rke2-canal-config', CNI),
  configMap('kube-flannel/kube-flannel-cfg', PODS),
  configMap('kube-system/kube-flannel-cfg', PODS),
  configMap('ovn-kubernetes/ovn-config', PODS),
  { apiVersion: 'v1', kind: 'ConfigMap', namespace: 'kube-system', labelSelector: 'app=antrea', for: [CNI] },
  // Calico serves its pools itself where its API server is installed, which no CRD shows.
  { apiVersion: 'projectcalico.org/v3', kind: 'IPPool', for: [] },
  custom('crd.projectcalico.org/v1', 'IPPool', 'ippools', [PODS]),
  custom('crd.projectcalico.org/v1', 'FelixConfiguration', 'felixconfigurations', [CNI], 'default'),
  custom('operator.tigera.io/v1', 'Installation', 'installations', [CNI], 'default'),
  custom('cilium.io/v2', 'CiliumNode', 'ciliumnodes', [PODS]),
  custom('config.openshift.io/v1', 'ClusterVersion', 'clusterversions', ['distribution']),
  custom('config.openshift.io/v1', 'Network', 'networks', [PODS, SERVICES, CNI]),
  custom('operator.openshift.io/v1', 'Network', 'networks', [CNI]),
  custom('operator.openshift.io/v1', 'DNS', 'dnses', [DNS], 'default'),
  custom('acn.azure.com/v1alpha', 'NodeNetworkConfig', 'nodenetworkconfigs', [PODS]),
  custom('networking.gke.io/v1', 'GKENetworkParamSet', 'gkenetworkparamsets', [PODS], 'default'),
  // What an earlier join left.
  { apiVersion: 'v1', kind: 'Namespace', name: SYSTEM_NAMESPACE, for: [] },
  {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    name: 'sealane-site',
    namespace: SYSTEM_NAMESPACE,
    for: ['an earlier install'],
  },
  { apiVersion: 'apps/v1', kind: 'Deployment', namespace: SYSTEM_NAMESPACE, for: ['an earlier install'] },
  {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRole',
    labelSelector: 'app.kubernetes.io/managed-by=sealane',
    for: ['an earlier install'],
  },
  custom('sealane.io/v1alpha1', 'Membership', 'memberships', ['an earlier install']),
  custom('sealane.io/v1alpha1', 'Cluster', 'clusters', ['an earlier install']),
]
