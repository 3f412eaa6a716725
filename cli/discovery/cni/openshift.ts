/** OVN-Kubernetes (OpenShift's, or by itself) and the old OpenShift SDN. */
import { type Evidence, networks } from '../evidence.ts'
import { daemonSet } from '../snapshot/containers.ts'
import { prefixesIn } from '../snapshot/prefix-texts.ts'
import { at, textAt } from '../snapshot/raw.ts'
import { type World, pathOf } from '../snapshot/snapshot.ts'
import { cniClaim } from './cni-claim.ts'

export function ovnKubernetes(world: World): Evidence[] {
  const network = world.list('Network', 'config.openshift.io')[0]
  const type = textAt(network, 'status', 'networkType') ?? textAt(network, 'spec', 'networkType')
  const workload = daemonSet(world, 'ovnkube-node')
  if (type !== 'OVNKubernetes' && workload === undefined) return []
  const field = type === undefined ? 'ovnkube-node' : 'Network.config.openshift.io cluster status.networkType'
  const how = workload === undefined ? field : pathOf(workload)
  const operator = world.list('Network', 'operator.openshift.io')[0]
  const gateway = at(operator, 'spec', 'defaultNetwork', 'ovnKubernetesConfig', 'gatewayConfig')
  const viaHost = at(gateway, 'routingViaHost') === true && textAt(gateway, 'ipForwarding') === 'Global'
  const plain = textAt(world.get('ConfigMap', 'ovn-config', 'ovn-kubernetes'), 'data', 'net_cidr')
  return [
    cniClaim('ovn-kubernetes', {
      mode: viaHost ? 'geneve, out by the host' : 'geneve, out by the shared gateway',
      how,
      bypassesNetfilter: !viaHost,
      // The ranges of the nodes are in an annotation of OVN's own.
      podRanges: 'own',
      traits: viaHost ? [] : ['ovn-shared-gateway'],
    }),
    { about: 'kubeProxy', value: { mode: 'none', insteadOf: 'OVN-Kubernetes' }, confidence: 'likely', how },
    // `10.244.0.0/16/24`: the network, then the size of a node's part.
    ...networks(
      'podCIDRs',
      prefixesIn([plain?.replace(/(\/\d+)\/\d+$/, '$1')]),
      'likely',
      'ConfigMap ovn-kubernetes/ovn-config net_cidr',
    ),
  ]
}

export function openshiftSdn(world: World): Evidence[] {
  const network = world.list('Network', 'config.openshift.io')[0]
  if (textAt(network, 'status', 'networkType') !== 'OpenShiftSDN') return []
  const how = 'Network.config.openshift.io cluster status.networkType'
  return [
    cniClaim('openshift-sdn', { mode: 'vxlan in Open vSwitch', how, podRanges: 'own' }),
    { about: 'kubeProxy', value: { mode: 'iptables', insteadOf: 'OpenShift SDN' }, confidence: 'likely', how },
  ]
}
