/** Detects kindnet, kube-router, Kube-OVN, Weave Net, Flannel, Canal, Antrea, OVN-Kubernetes and OpenShift SDN. */
import { type Evidence, cniClaim, networks } from '../evidence.ts'
import { byFamily, prefixesIn } from '../prefix-texts.ts'
import { type Product, configText, findProduct, workloadOf } from '../product.ts'
import {
  type World,
  annotationOf,
  at,
  containersOf,
  documentIn,
  environmentOf,
  flagOf,
  listAt,
  nameOf,
  pathOf,
  textAt,
} from '../snapshot.ts'

export function kindnet(world: World): Evidence[] {
  const workload = workloadOf(world, 'kindnet')
  if (workload === undefined) return []
  const how = pathOf(workload)
  const cidrs = byFamily(prefixesIn([environmentOf(workload, 'POD_SUBNET')]))
  // The kindnet that kind installs masquerades with iptables. The standalone kindnet does so with nftables, at an
  // earlier priority.
  const early = containersOf(workload).some(
    (container) => textAt(container, 'image')?.includes('aojea/kindnet') === true,
  )
  return [
    cniClaim('kindnet', {
      mode: 'routes between nodes',
      how,
      traits: early ? ['kindnet-early-masquerade'] : [],
    }),
    ...networks('podCIDRs', cidrs, 'certain', `${how} POD_SUBNET`),
  ]
}

export function kubeRouter(world: World): Evidence[] {
  const workload = workloadOf(world, 'kubeRouter')
  if (workload === undefined || flagOf(workload, 'run-router') === 'false') return []
  const how = pathOf(workload)
  const overlay = flagOf(workload, 'enable-overlay') !== 'false'
  const claims = [cniClaim('kube-router', { mode: overlay ? 'bgp, overlay between subnets' : 'bgp', how })]
  if (flagOf(workload, 'run-service-proxy') !== 'true') return claims
  const value = { mode: 'ipvs', insteadOf: 'kube-router' } as const
  return [...claims, { about: 'kubeProxy', value, confidence: 'certain', how: `${how} --run-service-proxy` }]
}

/** The default of Weave Net, which is no longer maintained. */
const WEAVE_DEFAULT = '10.32.0.0/12'

export function weave(world: World): Evidence[] {
  const workload = workloadOf(world, 'weave')
  if (workload === undefined) return []
  const how = pathOf(workload)
  const range = prefixesIn([environmentOf(workload, 'IPALLOC_RANGE')])
  return [
    cniClaim('weave', { mode: 'one bridged network', how, podRanges: 'own' }),
    ...(range.length > 0
      ? networks('podCIDRs', range, 'certain', `${how} IPALLOC_RANGE`)
      : networks('podCIDRs', [WEAVE_DEFAULT], 'certain', `${how}: no IPALLOC_RANGE, Weave then uses ${WEAVE_DEFAULT}`)),
  ]
}

// Flannel, as a DaemonSet or inside k3s, and Canal, which is Flannel with Calico's policy.

export function canal(world: World): Evidence[] {
  const workload = workloadOf(world, 'canal')
  return workload === undefined ? [] : claims(world, 'canal', pathOf(workload), findProduct(world, 'canal'))
}

export function flannel(world: World): Evidence[] {
  if (workloadOf(world, 'canal') !== undefined) return []
  const workload = workloadOf(world, 'flannel')
  if (workload !== undefined) return claims(world, 'flannel', pathOf(workload), findProduct(world, 'flannel'))
  const node = world.list('Node', '').find((one) => annotationOf(one, BACKEND) !== undefined)
  // An annotation may outlive the product, so a DaemonSet of another CNI takes precedence.
  return node === undefined
    ? []
    : claims(world, 'flannel', `Node ${nameOf(node)} annotation ${BACKEND}`, undefined, 'likely')
}

const BACKEND = 'flannel.alpha.coreos.com/backend-type'

function claims(
  world: World,
  name: 'flannel' | 'canal',
  how: string,
  product: Product | undefined,
  confidence: 'certain' | 'likely' = 'certain',
): Evidence[] {
  const config = configText(world, product, 'net-conf.json')
  const document = documentIn(config?.text)
  const annotated = world.list('Node', '').map((node) => annotationOf(node, BACKEND))
  const mode = textAt(document, 'Backend', 'Type') ?? annotated.find((text) => text !== undefined) ?? 'vxlan'
  const cidrs = byFamily(prefixesIn([textAt(document, 'Network'), textAt(document, 'IPv6Network')]))
  return [
    cniClaim(name, { mode, how, confidence }),
    ...networks('podCIDRs', cidrs, 'certain', `${config?.where ?? ''} Network`),
  ]
}

/** Detects Antrea. The configuration of its agents is a YAML file in a ConfigMap. */
export function antrea(world: World): Evidence[] {
  const product = findProduct(world, 'antrea')
  const workload = product?.workload
  if (workload === undefined) return []
  const agent = configText(world, product, 'antrea-agent.conf')
  const controller = configText(world, product, 'antrea-controller.conf')
  const document = documentIn(agent?.text)
  const encapsulation = textAt(document, 'trafficEncapMode') ?? 'encap'
  const ipam = at(documentIn(controller?.text), 'nodeIPAM')
  const mode = encapsulation === 'encap' ? (textAt(document, 'tunnelType') ?? 'geneve') : encapsulation
  const pools = at(ipam, 'enableNodeIPAM') === true ? prefixesIn(clusterCidrs(ipam)) : []
  return [
    // In the policy-only mode another CNI forwards the packets.
    ...(encapsulation === 'networkPolicyOnly' ? [] : [cniClaim('antrea', { mode, how: pathOf(workload) })]),
    ...networks('podCIDRs', pools, 'certain', `${controller?.where ?? ''} nodeIPAM.clusterCIDRs`),
    ...proxy(document, agent?.where ?? ''),
  ]
}

function clusterCidrs(ipam: unknown): string[] {
  const value = at(ipam, 'clusterCIDRs')
  return Array.isArray(value) ? value.filter((one): one is string => typeof one === 'string') : []
}

function proxy(document: unknown, where: string): Evidence[] {
  if (at(document, 'antreaProxy', 'proxyAll') !== true) return []
  const how = `${where} antreaProxy.proxyAll`
  return [{ about: 'kubeProxy', value: { mode: 'none', insteadOf: 'Antrea' }, confidence: 'likely', how }]
}

// OVN-Kubernetes, of OpenShift or standalone, and the older OpenShift SDN.

export function ovnKubernetes(world: World): Evidence[] {
  const network = world.list('Network', 'config.openshift.io')[0]
  const type = textAt(network, 'status', 'networkType') ?? textAt(network, 'spec', 'networkType')
  const product = findProduct(world, 'ovnKubernetes')
  const workload = product?.workload
  if (type !== 'OVNKubernetes' && workload === undefined) return []
  const field = type === undefined ? 'ovnkube-node' : 'Network.config.openshift.io cluster status.networkType'
  const how = workload === undefined ? field : pathOf(workload)
  const operator = world.list('Network', 'operator.openshift.io')[0]
  const gateway = at(operator, 'spec', 'defaultNetwork', 'ovnKubernetesConfig', 'gatewayConfig')
  const viaHost = at(gateway, 'routingViaHost') === true && textAt(gateway, 'ipForwarding') === 'Global'
  const plain = configText(world, product, 'net_cidr')
  return [
    cniClaim('ovn-kubernetes', {
      mode: viaHost ? 'geneve, through the host' : 'geneve, through the shared gateway',
      how,
      bypassesNetfilter: !viaHost,
      // The ranges of the nodes are in an annotation of OVN-Kubernetes.
      podRanges: 'own',
      traits: viaHost ? [] : ['ovn-shared-gateway'],
    }),
    { about: 'kubeProxy', value: { mode: 'none', insteadOf: 'OVN-Kubernetes' }, confidence: 'likely', how },
    // `10.244.0.0/16/24`: the network, followed by the prefix length of a node's range.
    ...networks(
      'podCIDRs',
      prefixesIn(plain?.text.split(',').map((one) => one.trim().replace(/(\/\d+)\/\d+$/, '$1')) ?? []),
      'likely',
      plain?.where ?? '',
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

// CNIs with pools of their own.

/** The networks of Kube-OVN whose packets the nodes route. Those of other VPCs and providers are isolated from them. */
export function kubeOvn(world: World): Evidence[] {
  const subnets = kubeOvnSubnets(world).filter(isRouted)
  const names = subnets.map(nameOf).slice(0, 3).join(', ')
  return [
    ...networks('podCIDRs', byFamily(cidrsOf(subnets)), 'certain', `Subnet.kubeovn.io ${names} spec.cidrBlock`),
    ...otherVpcs(world),
  ]
}

/** The networks of pods that no node reaches, because they are in other VPCs. A VPC may have the addresses of another. */
export function isolatedNetworks(world: World): {
  readonly isolated: readonly string[]
  readonly routed: readonly string[]
} {
  const subnets = kubeOvnSubnets(world)
  return { isolated: cidrsOf(subnets.filter(isOfOtherVpc)), routed: cidrsOf(subnets.filter(isRouted)) }
}

/** One finding for all other VPCs, with the networks that they have. */
function otherVpcs(world: World): Evidence[] {
  const subnets = kubeOvnSubnets(world).filter(isOfOtherVpc)
  if (subnets.length === 0) return []
  const named = subnets
    .slice(0, MOST_SUBNETS)
    .map((subnet) => `${textAt(subnet, 'spec', 'cidrBlock') ?? ''} of VPC ${textAt(subnet, 'spec', 'vpc') ?? ''}`)
  const more = subnets.length > MOST_SUBNETS ? ` and ${subnets.length - MOST_SUBNETS} more` : ''
  return [{ about: 'platform', value: 'kube-ovn-vpcs', confidence: 'certain', how: `${named.join(', ')}${more}` }]
}

/** Most subnets that one advice names. */
const MOST_SUBNETS = 3

function kubeOvnSubnets(world: World): readonly unknown[] {
  return world.list('Subnet', 'kubeovn.io')
}

/** The subnet `join` connects the nodes and has no pods. */
function isRouted(subnet: unknown): boolean {
  return !isOfOtherVpc(subnet) && isOfOvn(subnet) && nameOf(subnet) !== 'join'
}

/** Subnets of other providers are second networks of pods. */
function isOfOtherVpc(subnet: unknown): boolean {
  return ![undefined, '', 'ovn-cluster'].includes(textAt(subnet, 'spec', 'vpc')) && isOfOvn(subnet)
}

function isOfOvn(subnet: unknown): boolean {
  return [undefined, '', 'ovn'].includes(textAt(subnet, 'spec', 'provider'))
}

function cidrsOf(subnets: readonly unknown[]): string[] {
  return prefixesIn(subnets.map((subnet) => textAt(subnet, 'spec', 'cidrBlock')))
}

/** The pools that Antrea uses for pods with an annotation, in addition to the ranges of the nodes. */
export function antreaPools(world: World): string[] {
  const ranges = world.list('IPPool', 'crd.antrea.io').flatMap((pool) => listAt(pool, 'spec', 'ipRanges'))
  return prefixesIn(ranges.map((range) => textAt(range, 'cidr')))
}
