/**
 * The text of docs/platforms.md: each platform that README.md and docs/operations.md name, the objects that the tests
 * have for it, and what every detector answers for them.
 */
import { type Discovery, advice, describeDiscovery, discover, hindrances } from '../../cli/discovery/discovery.ts'
import { fixture } from '../../test/cli/discovery/support/fixtures.ts'
import { listItem } from './wrap-text.ts'

export interface PlatformRow {
  /** As the documents call it. Several rows may have the same name. */
  readonly name: string
  /** A file in test/cli/discovery/fixtures, without `.yaml`. */
  readonly objects: string
}

type Kind = 'CNIs' | 'Service proxies' | 'Distributions' | 'Cluster DNS'

export const PLATFORMS: Readonly<Record<Kind, readonly PlatformRow[]>> = {
  CNIs: [
    { name: 'Flannel', objects: 'kubeadm-flannel' },
    { name: 'Canal', objects: 'rke2-canal' },
    { name: 'kindnet', objects: 'kind' },
    { name: 'Antrea', objects: 'kubeadm-antrea' },
    { name: 'kube-router', objects: 'kubeadm-kube-router' },
    { name: 'kubenet (AKS)', objects: 'aks-kubenet' },
    { name: 'Calico with iptables or nftables', objects: 'kubeadm-calico-vxlan' },
    { name: 'Calico with iptables or nftables', objects: 'kubeadm-calico-bgp-ipvs' },
    { name: 'Calico with iptables or nftables', objects: 'kubeadm-calico-operator' },
    { name: 'Calico with eBPF or VPP', objects: 'calico-ebpf' },
    { name: 'Calico with eBPF or VPP', objects: 'calico-vpp' },
    { name: 'Cilium with kube-proxy', objects: 'kubeadm-cilium' },
    { name: 'Cilium without kube-proxy', objects: 'kubeadm-cilium-kube-proxy-free' },
    { name: 'Cilium without kube-proxy', objects: 'openshift-cilium' },
    { name: 'Cilium with addresses of a cloud (eni, azure)', objects: 'eks-cilium-eni' },
    { name: 'OVN-Kubernetes', objects: 'openshift-ovn' },
    { name: 'OpenShift SDN', objects: 'openshift-sdn' },
    { name: 'Amazon VPC CNI', objects: 'eks-vpc-cni' },
    { name: 'Azure CNI with VNet addresses', objects: 'aks-node-subnet' },
    { name: 'Azure CNI Overlay', objects: 'aks-overlay' },
    { name: 'GKE without Dataplane V2', objects: 'gke' },
    { name: 'GKE Dataplane V2', objects: 'gke-dataplane-v2' },
    { name: 'Weave Net', objects: 'kubeadm-weave' },
  ],
  'Service proxies': [
    { name: 'iptables', objects: 'kubeadm-flannel' },
    { name: 'nftables', objects: 'kubeadm-antrea' },
    { name: 'ipvs', objects: 'k3s' },
    { name: 'kube-router', objects: 'kubeadm-kube-router' },
    { name: "none (the CNI's)", objects: 'openshift-ovn' },
  ],
  Distributions: [
    { name: 'kubeadm', objects: 'kubeadm-flannel' },
    { name: 'k3s', objects: 'k3s' },
    { name: 'RKE2', objects: 'rke2-canal' },
    { name: 'kind', objects: 'kind' },
    { name: 'OpenShift', objects: 'openshift-ovn' },
    { name: 'GKE', objects: 'gke' },
    { name: 'GKE Autopilot', objects: 'gke-autopilot' },
    { name: 'EKS', objects: 'eks-vpc-cni' },
    { name: 'EKS with Fargate beside nodes', objects: 'eks-vpc-cni' },
    { name: 'EKS Auto Mode', objects: 'eks-auto-mode' },
    { name: 'AKS', objects: 'aks-overlay' },
  ],
  'Cluster DNS': [
    { name: 'CoreDNS with a Corefile', objects: 'kubeadm-flannel' },
    { name: 'Corefile that imports `*.server`', objects: 'k3s' },
    { name: 'kube-dns', objects: 'gke' },
  ],
}

/** Platforms whose nodes a test sets up alike and sends packets through, and the test. */
export const PACKETS: Readonly<Record<string, string>> = {
  'Flannel (host-gw)': 'test/kube/joined-clusters.test.ts',
  'Calico (its own IPAM)': 'test/netns/pod-ranges.test.ts',
  'kube-proxy with nftables, CoreDNS with a Corefile': 'test/kube/joined-clusters.test.ts',
}

export interface PlatformAnswers {
  /** Each detector and its answer, such as `CNI: flannel (vxlan)`. */
  readonly facts: readonly string[]
  /** The subjects of the other advice that is not `nothing`, by its kind: `note: Amazon VPC CNI`. */
  readonly advised: readonly string[]
  /** `refused`: a join stops without --force. `asks`: the user states what is only guessed or not found. */
  readonly join: 'refused' | 'asks' | 'joins'
  /** What the user does, by its subject. */
  readonly todo: readonly string[]
  /** What no detector found. */
  readonly notFound: readonly string[]
}

const KINDS = { unsupported: 'does not work', instruction: 'to do', action: 'will be done', limit: 'note' } as const
/** Words for the lines of describeDiscovery(), in the order of the document. The others are left out. */
const WORDS: Readonly<Record<string, string>> = {
  distribution: '',
  'pod CIDRs': 'pods ',
  'service CIDRs': 'Services ',
  CNI: 'CNI ',
  'service proxy': 'proxy ',
  'cluster DNS': 'DNS ',
  'also present': 'also ',
}

/** Runs all detectors on the objects. Throws if there is no such file. */
export function answersOf(objects: string): PlatformAnswers {
  const discovery = discover(fixture(objects))
  const given = advice(discovery)
  const lines = describeDiscovery(discovery)
    .map((line) => line.split(/ {2,}/))
    .filter(([what = '']) => WORDS[what] !== undefined)
  const facts = lines.map(([what = '', value = '']) => {
    const sure = sureness(discovery, what)
    return `${WORDS[what] ?? ''}${shortened(value)}${sure === undefined || sure === 'certain' ? '' : ` (${sure})`}`
  })
  const { candidates, unfit } = discovery.gateways
  const subjects = (kind: keyof typeof KINDS): readonly string[] => [
    ...new Set(given.filter((one) => one.kind === kind).map(({ about }) => about)),
  ]
  const isRefused = discovery.obstacles.length > 0 || hindrances(given).length > 0
  return {
    facts: [...facts, `gateways ${candidates.length}/${candidates.length + unfit.length}`],
    advised: (Object.keys(KINDS) as (keyof typeof KINDS)[])
      // The tables have what is to do.
      .filter((kind) => kind !== 'instruction' && subjects(kind).length > 0)
      .map((kind) => `${KINDS[kind]}: ${subjects(kind).join(', ')}`),
    join: isRefused ? 'refused' : discovery.asks.length > 0 ? 'asks' : 'joins',
    todo: subjects('instruction'),
    notFound: lines.filter(([, value]) => value === 'not found').map(([what = '']) => what),
  }
}

/** Without words that the introduction of the list says, or that follow from the kind of the answer. */
function shortened(value: string): string {
  return value
    .replace(', cluster.local', '')
    .replace(' at ', ' ')
    .replace(/^kube-proxy, /, '')
}

function sureness({ dns, ...found }: Discovery, what: string): string | undefined {
  return {
    distribution: found.distribution,
    'pod CIDRs': found.podCIDRs,
    'service CIDRs': found.serviceCIDRs,
    CNI: found.cni,
    'service proxy': found.kubeProxy,
    'cluster DNS': dns.flavour,
  }[what]?.confidence
}

export function platformsDocument(): string {
  const sections = Object.entries(PLATFORMS).map(([kind, rows]) =>
    [`## ${kind}`, ['| platform | objects | `join` |', '|---|---|---|', ...rowTexts(rows)].join('\n')].join('\n\n'),
  )
  const packets = Object.entries(PACKETS).map(([name, test]) => listItem(`${name}: ${test}`))
  const used = new Set(Object.values(PLATFORMS).flatMap((rows) => rows.map(({ objects }) => objects)))
  const answers = [...used].sort().map((objects) => {
    const { facts, advised } = answersOf(objects)
    return listItem(`\`${objects}\`: ${[...facts, ...advised].join('; ')}.`)
  })
  return `${[
    INTRODUCTION,
    ...sections,
    '## Packets',
    PACKETS_TEXT,
    packets.join('\n'),
    '## What the detectors answer',
    ANSWERS_TEXT,
    answers.join('\n'),
  ].join('\n\n')}\n`
}

/** One row for the objects of a platform that a join treats alike. */
function rowTexts(rows: readonly PlatformRow[]): readonly string[] {
  const alike = new Map<string, { readonly name: string; readonly objects: string[]; readonly text: string }>()
  for (const { name, objects } of rows) {
    const { join, todo } = answersOf(objects)
    const others = todo.filter((about) => about !== EVERY_CLOUD)
    const text = join === 'refused' || others.length === 0 ? join : `${join}; to do: ${others.join(', ')}`
    const row = alike.get(`${name} ${text}`) ?? { name, objects: [], text }
    alike.set(`${name} ${text}`, { ...row, objects: [...row.objects, `\`${objects}\``] })
  }
  return [...alike.values()].flatMap(({ name, objects, text }) => {
    const line = (named: readonly string[]): string => `| ${name} | ${named.join(', ')} | ${text} |`
    return line(objects).length > WIDTH ? objects.map((one) => line([one])) : [line(objects)]
  })
}

/** The most columns of a document. */
const WIDTH = 120

/** The advice that INTRODUCTION gives once. */
const EVERY_CLOUD = 'Firewall'

const INTRODUCTION = [
  '# Platforms',
  '',
  'Generated by `npm run docs:platforms`: the detectors of `sealane join` run on objects in',
  '`test/cli/discovery/fixtures`, written by hand after published ones. None is of a running cluster.',
  '',
  '`joins`: it finds all; `asks`: it asks for what is guessed; `refused`: it stops without `--force`. To do: see',
  '[operations](operations.md#clusters-and-cnis). Clouds need an open firewall, too.',
].join('\n')

const PACKETS_TEXT = 'Tests send packets through nodes set up like these:'

const ANSWERS_TEXT = [
  'Certain unless it says `likely` or `guess`. iptables, nftables and ipvs are modes of kube-proxy; gateways: nodes that',
  'can be one, of all; domain: cluster.local.',
].join('\n')
