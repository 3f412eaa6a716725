/** Detects the parts that every cluster has in addition to its CNI: the cluster DNS and the service proxy. */
import {
  type Confidence,
  type DnsFlavour,
  type Evidence,
  type Finding,
  type KubeProxy,
  type KubeProxyMode,
  networks,
} from './evidence.ts'
import { isDistribution } from './platform.ts'
import { prefixesIn } from './prefix-texts.ts'
import { type ConfigText, configText, dnsServices, findProduct, settingsNamed, workloadOf } from './product.ts'
import { type World, documentIn, flagOf, labelOf, partPods, pathOf, textAt } from './snapshot.ts'

/** Detects which DNS server answers the cluster's zone, at which address, and which object configures it. */
export function clusterDns(world: World): Evidence[] {
  return [...openshift(world), ...flavour(world), ...address(world), ...domain(world)]
}

function openshift(world: World): Evidence[] {
  const dns = world.get('DNS', 'default')
  if (dns === undefined) return []
  const how = (field: string): string => `DNS.operator.openshift.io default ${field}`
  const ip = textAt(dns, 'status', 'clusterIP')
  const zone = textAt(dns, 'status', 'clusterDomain')
  return [
    { about: 'dnsFlavour', value: 'openshift', confidence: 'certain', how: 'DNS.operator.openshift.io default' },
    ...(ip === undefined ? [] : [text('dnsAddress', ip, 'certain', how('status.clusterIP'))]),
    ...(zone === undefined ? [] : [text('dnsDomain', zone, 'certain', how('status.clusterDomain'))]),
  ]
}

interface Row {
  readonly flavour: DnsFlavour
  readonly mark: (world: World) => string | undefined
}

const ROWS: readonly Row[] = [
  { flavour: 'rke2', mark: (world) => settings(world, 'rke2-coredns-rke2-coredns') },
  {
    flavour: 'immutable',
    mark: (world) =>
      isDistribution(world, 'eks') &&
      world.list('Node', '').some((node) => labelOf(node, 'eks.amazonaws.com/compute-type') === 'auto') &&
      settings(world, 'coredns') === undefined
        ? 'EKS Auto Mode runs DNS on its nodes, outside Kubernetes'
        : undefined,
  },
  {
    flavour: 'kube-dns',
    mark: (world) => (isDistribution(world, 'gke') ? kubeDns(world) : undefined),
  },
  {
    flavour: 'aks',
    mark: (world) => (isDistribution(world, 'aks') ? settings(world, 'coredns-custom') : undefined),
  },
  {
    flavour: 'k3s',
    mark: (world) => (isDistribution(world, 'k3s') ? settings(world, 'coredns') : undefined),
  },
  { flavour: 'coredns', mark: (world) => settings(world, 'coredns') ?? corefileOf(world)?.where },
  { flavour: 'kube-dns', mark: kubeDns },
]

function flavour(world: World): Evidence[] {
  for (const row of ROWS) {
    const how = row.mark(world)
    if (how !== undefined) return [{ about: 'dnsFlavour', value: row.flavour, confidence: 'likely', how }]
  }
  return []
}

function settings(world: World, name: string): string | undefined {
  const found = settingsNamed(world, findProduct(world, 'coredns'), name)
  return found === undefined ? undefined : pathOf(found)
}

function corefileOf(world: World): ConfigText | undefined {
  return configText(world, findProduct(world, 'coredns'), 'Corefile')
}

function kubeDns(world: World): string | undefined {
  const workload = workloadOf(world, 'kubeDns')
  return workload === undefined ? undefined : pathOf(workload)
}

function address(world: World): Evidence[] {
  for (const { namespace, name } of dnsServices(world)) {
    const path = `${namespace}/${name}`
    const ip = textAt(world.get('Service', name, namespace), 'spec', 'clusterIP')
    if (ip !== undefined && ip !== 'None') return [text('dnsAddress', ip, 'likely', `Service ${path} spec.clusterIP`)]
  }
  return []
}

/** The first zone of CoreDNS' `kubernetes` plugin is the cluster's own. */
function domain(world: World): Evidence[] {
  const corefile = corefileOf(world)
  const zone = corefile === undefined ? undefined : /^\s*kubernetes\s+([a-zA-Z0-9.-]+)/m.exec(corefile.text)?.[1]
  if (zone === undefined || corefile === undefined) return []
  return [text('dnsDomain', zone.replace(/\.$/, ''), 'certain', `${corefile.where} kubernetes plugin`)]
}

function text(about: 'dnsAddress' | 'dnsDomain', value: string, confidence: Confidence, how: string): Evidence {
  return { about, value, confidence, how }
}

/** Detects the mode of kube-proxy from its configuration or its command line. */
export function kubeProxy(world: World): Evidence[] {
  const product = findProduct(world, 'kubeProxy')
  const workload = product?.workload ?? partPods(world, 'kube-proxy')[0]
  // Clusters without kube-proxy often keep its ConfigMap, which then means nothing.
  if (workload === undefined) return []
  const config = configText(world, product, 'config.conf', 'config', 'kube-proxy-config.yaml')
  const document = documentIn(config?.text)
  const mode = modeOf(flagOf(workload, 'proxy-mode'))
  const found: Finding<KubeProxy> =
    mode !== undefined
      ? claim(mode, `${pathOf(workload)} --proxy-mode`)
      : config !== undefined && typeof document === 'object'
        ? claim(modeOf(textAt(document, 'mode')) ?? 'iptables', modeSource(config.where, textAt(document, 'mode')))
        : { ...claim('iptables', `${pathOf(workload)}: no mode named, iptables is the default`), confidence: 'likely' }
  const cidrs = prefixesIn([flagOf(workload, 'cluster-cidr') ?? textAt(document, 'clusterCIDR')])
  const where = flagOf(workload, 'cluster-cidr') === undefined ? `${config?.where ?? ''} clusterCIDR` : pathOf(workload)
  return [{ about: 'kubeProxy', ...found }, ...networks('podCIDRs', cidrs, 'likely', withFlag(where))]
}

function withFlag(where: string): string {
  return where.endsWith('clusterCIDR') ? where : `${where} --cluster-cidr`
}

function claim(mode: KubeProxyMode, how: string): Finding<KubeProxy> {
  return { value: { mode, insteadOf: undefined }, confidence: 'certain', how }
}

function modeSource(where: string, mode: string | undefined): string {
  return mode === undefined ? `${where} mode: empty, iptables is the default` : `${where} mode`
}

function modeOf(text: string | undefined): KubeProxyMode | undefined {
  return (['iptables', 'ipvs', 'nftables'] as const).find((mode) => mode === text)
}
