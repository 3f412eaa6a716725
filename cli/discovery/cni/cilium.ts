/**
 * Detects Cilium from the ConfigMap cilium-config in its own namespace. The pod ranges of nodes are in CiliumNode
 * objects, and those of the IPAM mode multi-pool in CiliumPodIPPool objects.
 */
import { type Evidence, type Trait, cniClaim, networks } from '../evidence.ts'
import { type World, at, keysAt, listAt, nameOf, pathOf, textAt, textsAt } from '../snapshot.ts'
import { byFamily, prefixesIn, smallestCover } from '../prefix-texts.ts'
import { findProduct, settingsNamed, workloadOf } from '../product.ts'

/** IPAM modes in which pods have addresses of the cloud's own network. */
const CLOUD_IPAM = ['eni', 'azure', 'alibabacloud']
/** IPAM modes in which the pods of a node have addresses of its Node.spec.podCIDRs. */
const NODE_IPAM = ['kubernetes']

interface Setting {
  (key: string): string | undefined
  /** The object that contains the settings, for messages. */
  readonly where: string
}

export function cilium(world: World): Evidence[] {
  const product = findProduct(world, 'cilium')
  // GKE's Dataplane V2 is Cilium too, but managed by Google: see cni/cloud.ts.
  if (product === undefined || workloadOf(world, 'anetd') !== undefined) return []
  const { workload, namespace } = product
  const config = settingsNamed(world, product, 'cilium-config')
  const where = config === undefined ? `no ConfigMap ${namespace}/cilium-config` : pathOf(config)
  const setting: Setting = Object.assign((key: string) => textAt(config, 'data', key), { where })
  const chained = setting('cni-chaining-mode')
  const other = mesh(setting)
  // Chained behind another CNI, Cilium only enforces policy, and the other CNI forwards the packets.
  if (chained !== undefined && !['none', 'portmap'].includes(chained)) return other
  const ipam = setting('ipam') ?? 'cluster-pool'
  return [
    cniClaim('cilium', {
      mode: modeOf(setting),
      how: workload === undefined ? where : `${pathOf(workload)}, ${where} routing-mode`,
      namespace,
      bypassesNetfilter: hostRoutingInBpf(setting),
      podRanges: NODE_IPAM.includes(ipam) || rangesAgree(world) ? 'node' : 'own',
      traits: traitsOf(setting, ipam),
    }),
    ...podNetworks(world, setting, ipam),
    ...proxy(setting),
    ...other,
  ]
}

function modeOf(setting: Setting): string {
  const routing = setting('routing-mode')
  const old = setting('tunnel')
  const native = routing === 'native' || (routing === undefined && old === 'disabled')
  return native ? 'native routing' : (setting('tunnel-protocol') ?? (old === 'geneve' ? 'geneve' : 'vxlan'))
}

function replacesProxy(setting: Setting): boolean {
  return ['true', 'strict'].includes(setting('kube-proxy-replacement') ?? '')
}

/**
 * With BPF host routing, packets of pods are forwarded between devices without netfilter. Cilium does so only if it
 * also replaces kube-proxy and masquerades in BPF; for netkit pods it always does so.
 */
function hostRoutingInBpf(setting: Setting): boolean {
  if (setting('enable-host-legacy-routing') === 'true') return false
  const netkit = setting('datapath-mode')?.startsWith('netkit') === true
  return netkit || (replacesProxy(setting) && setting('enable-bpf-masquerade') === 'true')
}

function traitsOf(setting: Setting, ipam: string): Trait[] {
  const rows: readonly (readonly [Trait, boolean])[] = [
    ['cilium-bpf-host-routing', hostRoutingInBpf(setting)],
    ['cilium-bpf-masquerade', setting('enable-bpf-masquerade') === 'true'],
    ['cilium-cloud-ipam', CLOUD_IPAM.includes(ipam)],
    ['cloud-addresses', CLOUD_IPAM.includes(ipam)],
    ['cilium-host-firewall', setting('enable-host-firewall') === 'true'],
    ['cilium-wide-devices', (setting('devices') ?? '').split(/[\s,]+/).some(takesOurDevices)],
  ]
  return rows.filter(([, is]) => is).map(([trait]) => trait)
}

/** `devices` contains device names, and prefixes that end with `+`. */
function takesOurDevices(pattern: string): boolean {
  if (pattern.endsWith('+')) return 'sealane'.startsWith(pattern.slice(0, -1)) || pattern.startsWith('sealane')
  return pattern.startsWith('sealane')
}

function podNetworks(world: World, setting: Setting, ipam: string): Evidence[] {
  const pools = byFamily(prefixesIn([setting('cluster-pool-ipv4-cidr'), setting('cluster-pool-ipv6-cidr')]))
  const inUse = byFamily(smallestCover(nodeRanges(world)))
  if (ipam === 'multi-pool') return multiPool(world)
  if (CLOUD_IPAM.includes(ipam)) {
    const how = 'CiliumNode status, the subnets of its interfaces'
    return networks('podCIDRs', byFamily(cloudSubnets(world)), 'guess', how)
  }
  return [
    ...(ipam === 'cluster-pool'
      ? networks('podCIDRs', pools, 'certain', `${setting.where} cluster-pool-ipv4-cidr`)
      : []),
    ...(NODE_IPAM.includes(ipam)
      ? []
      : networks('podCIDRs', inUse, 'guess', 'smallest network around CiliumNode spec.ipam.podCIDRs')),
  ]
}

/** Pods have addresses of the pools that exist. Nodes are given parts of them on demand. */
function multiPool(world: World): Evidence[] {
  const pools = world.list('CiliumPodIPPool', 'cilium.io')
  const cidrs = pools.flatMap((pool) =>
    ['ipv4', 'ipv6'].flatMap((family) =>
      listAt(pool, 'spec', family, 'cidrs').map((entry) => (typeof entry === 'string' ? entry : textAt(entry, 'cidr'))),
    ),
  )
  const names = [...new Set(pools.map(nameOf))].slice(0, 3).join(', ')
  const found = networks('podCIDRs', byFamily(prefixesIn(cidrs)), 'certain', `CiliumPodIPPool ${names} spec`)
  return found.length > 0 ? found : allocatedParts(world)
}

/** If the pools may not be read: one network around the parts of each pool. */
function allocatedParts(world: World): Evidence[] {
  const parts = new Map<string, string[]>()
  for (const node of world.list('CiliumNode')) {
    for (const entry of listAt(node, 'spec', 'ipam', 'pools', 'allocated')) {
      const pool = textAt(entry, 'pool') ?? ''
      parts.set(pool, [...(parts.get(pool) ?? []), ...prefixesIn(textsAt(entry, 'cidrs'))])
    }
  }
  const covers = [...parts.values()].flatMap((cidrs) => smallestCover(cidrs))
  const how = 'smallest network around each pool of CiliumNode spec.ipam.pools.allocated'
  return networks('podCIDRs', byFamily(prefixesIn(covers)), 'guess', how)
}

/** The subnets of the cloud from which Cilium takes addresses: AWS, Azure and Alibaba Cloud. */
function cloudSubnets(world: World): string[] {
  return prefixesIn(
    world.list('CiliumNode').flatMap((node) => {
      const maps = [at(node, 'status', 'eni', 'enis'), at(node, 'status', 'alibaba-cloud', 'enis')]
      const enis = maps.flatMap((map) => keysAt(map).map((key) => at(map, key)))
      const azure = listAt(node, 'status', 'azure', 'interfaces')
      return [
        ...enis.flatMap((eni) => [textAt(eni, 'subnet', 'cidr'), textAt(eni, 'vswitch', 'cidr-block')]),
        ...azure.map((one) => textAt(one, 'cidr')),
      ]
    }),
  )
}

function nodeRanges(world: World): string[] {
  return prefixesIn(world.list('CiliumNode').flatMap((node) => textsAt(node, 'spec', 'ipam', 'podCIDRs')))
}

/** True if the ranges of every CiliumNode are also those of its Node. */
function rangesAgree(world: World): boolean {
  const nodes = world.list('CiliumNode')
  return (
    nodes.length > 0 &&
    nodes.every((one) => {
      const own = prefixesIn(textsAt(one, 'spec', 'ipam', 'podCIDRs'))
      const node = world.get('Node', textAt(one, 'metadata', 'name') ?? '')
      const given = prefixesIn(textsAt(node, 'spec', 'podCIDRs'))
      return own.length > 0 && own.every((range) => given.includes(range))
    })
  )
}

function proxy(setting: Setting): Evidence[] {
  if (!replacesProxy(setting)) return []
  const how = `${setting.where} kube-proxy-replacement`
  return [{ about: 'kubeProxy', value: { mode: 'none', insteadOf: 'Cilium' }, confidence: 'certain', how }]
}

function mesh(setting: Setting): Evidence[] {
  const ownsMcs = setting('clustermesh-enable-mcs-api') === 'true'
  const joined = ownsMcs || !['0', undefined].includes(setting('cluster-id'))
  if (!joined) return []
  const how = ownsMcs ? `${setting.where} clustermesh-enable-mcs-api` : `${setting.where} cluster-id`
  return [{ about: 'other', value: { name: 'Cilium Cluster Mesh', ownsMcs }, confidence: 'certain', how }]
}
