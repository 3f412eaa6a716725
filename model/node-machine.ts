/**
 * What a Node of a cluster is: a Linux machine of its own, a virtual node, or a node with another system. Only a machine
 * runs a routeagent and can be a gateway. Pure.
 *
 * A virtual node stands for capacity elsewhere: a cloud runs each of its pods in a virtual machine without a node, or
 * another cluster runs them. A DaemonSet has no effect there. Each product is known by several signs, because versions
 * and users leave some of them out. Nodes at the edge that run a whole kubelet, kube-proxy and CNI (OpenYurt, SuperEdge)
 * are machines. KubeEdge is not among them although its nodes are machines: they have no kube-proxy and no CNI, reach
 * the API server only through a tunnel, and cannot be reached by the other nodes, so no overlay can include them.
 */

export type NodeMachine =
  | { readonly is: 'machine' }
  | {
      readonly is: 'virtual'
      /** The name of the product: `EKS Fargate`. */
      readonly product: string
      /** What shows it: `label type=virtual-kubelet`. */
      readonly sign: string
      /** A label shows it, so that a node affinity can leave the node out. */
      readonly isLabelled: boolean
      /** More than its name, its roles and labels of ours shows it: these a machine may have, too. */
      readonly isSure: boolean
      /** Set if nothing else shows it. No join labels such a node, so a DaemonSet wants a pod there. */
      readonly onlyBy?: 'name' | 'roles'
    }
  | { readonly is: 'other-system'; readonly system: string; readonly sign: string }

/** With any value: this Node is no machine of its own. For virtual nodes that no label of their product shows. */
export const LABEL_VIRTUAL_NODE = 'sealane.io/virtual-node'
/**
 * `true`: this Node is a machine of its own, whatever signs of virtual nodes it has, and LABEL_VIRTUAL_NODE among them.
 * `false`: it is none. Any other value states nothing. A system other than Linux stays what it is. A label, because a
 * node affinity sees no annotation.
 */
export const LABEL_MACHINE = 'sealane.io/machine'
/** The value of LABEL_VIRTUAL_NODE that a join sets. */
export const LABELLED_BY_JOIN = 'join'

type TextMap = Readonly<Record<string, string>>

/** The fields of a Node that show what it is and how long it stays. A field that is absent or malformed is empty. */
export interface NodeSigns {
  readonly name: string
  readonly labels: TextMap
  readonly annotations: TextMap
  readonly taints: readonly { readonly key: string; readonly value: string }[]
  /** `spec.providerID`. */
  readonly providerId: string
  /** Fields of `status.nodeInfo`. */
  readonly info: TextMap
}

/** Reads the signs of a Node. Takes any value: nodes come from clusters whose objects are not trusted. Never throws. */
export function nodeSigns(node: unknown): NodeSigns {
  const taints = at(node, 'spec', 'taints')
  return {
    name: text(at(node, 'metadata', 'name')),
    labels: texts(at(node, 'metadata', 'labels')),
    annotations: texts(at(node, 'metadata', 'annotations')),
    taints: (Array.isArray(taints) ? (taints as unknown[]) : [])
      .map((taint) => ({ key: text(at(taint, 'key')), value: text(at(taint, 'value')) }))
      .filter(({ key }) => key !== ''),
    providerId: text(at(node, 'spec', 'providerID')),
    info: texts(at(node, 'status', 'nodeInfo')),
  }
}

function at(value: unknown, ...path: readonly string[]): unknown {
  let here = value
  for (const key of path) {
    if (typeof here !== 'object' || here === null || !Object.hasOwn(here, key)) return undefined
    here = (here as Readonly<Record<string, unknown>>)[key]
  }
  return here
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function texts(value: unknown): TextMap {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return {}
  const pairs = Object.entries(value).filter((pair): pair is [string, string] => typeof pair[1] === 'string')
  return Object.assign(Object.create(null) as Record<string, string>, Object.fromEntries(pairs))
}

/** The values that count; `any`: each value. */
type Values = readonly string[] | 'any'

interface Product {
  readonly name: string
  /** Each of these labels alone shows it. */
  readonly labels?: Readonly<Record<string, Values>>
  /**
   * Labels or taints that show it if a node has all of them, no label whose key matches, and no ordinary kubelet. No
   * affinity sees that.
   */
  readonly together?: { readonly all: readonly string[]; readonly none: RegExp }
  readonly annotations?: Readonly<Record<string, Values>>
  readonly taints?: Readonly<Record<string, Values>>
  /** Counts only where the kubelet is no ordinary one. */
  readonly names?: RegExp
  readonly providerIds?: RegExp
  /** Fields of `status.nodeInfo`. */
  readonly info?: Readonly<Record<string, RegExp>>
}

const MARKED: Product = {
  name: 'marked as a virtual node',
  labels: { [LABEL_VIRTUAL_NODE]: 'any', [LABEL_MACHINE]: ['false'] },
}

/** The first product that a sign shows counts. `Virtual Kubelet`, on which most are built, is the last one. */
const PRODUCTS: readonly Product[] = [
  {
    name: 'EKS Fargate',
    labels: { 'eks.amazonaws.com/compute-type': ['fargate'] },
    taints: { 'eks.amazonaws.com/compute-type': ['fargate'] },
    names: /^fargate-ip-\d/,
    providerIds: /^aws:.*\/fargate-/,
  },
  {
    name: 'Azure Container Instances',
    labels: { virtualization: ['virtualnode2'] },
    taints: { 'azure.com/aci': 'any', 'virtual-kubelet.io/provider': ['azure'] },
    names: /^virtual-node-aci-/,
    info: { kubeletVersion: /vk-azure-aci/ },
  },
  {
    name: 'Liqo',
    labels: { 'liqo.io/type': ['virtual-node'] },
    taints: { 'virtual-node.liqo.io/not-allowed': 'any' },
    providerIds: /^liqo:/,
  },
  {
    name: 'Admiralty',
    labels: { 'virtual-kubelet.io/provider': ['admiralty'], 'kubernetes.io/role': ['cluster'] },
    taints: { 'virtual-kubelet.io/provider': ['admiralty'] },
    names: /^admiralty-/,
  },
  {
    name: 'interLink',
    labels: { 'virtual-node.interlink/type': 'any' },
    taints: { 'virtual-node.interlink/no-schedule': 'any', 'virtual-node.interlink.eu': 'any' },
  },
  {
    name: 'Tencent super node',
    labels: { 'node.kubernetes.io/instance-type': ['eklet'] },
    taints: { 'eks.tke.cloud.tencent.com/eklet': 'any' },
    names: /^eklet-/,
    info: { kubeletVersion: /eklet/ },
  },
  {
    name: 'Volcengine VCI',
    labels: { 'vci.vke.volcengine.com/node-type': 'any' },
    taints: { 'vci.vke.volcengine.com/node-type': 'any' },
  },
  {
    name: 'OKE virtual node',
    annotations: { 'oci.oraclecloud.com/virtual-node-pool-id': 'any' },
    providerIds: /^(oci:\/\/)?ocid1\.virtualnode\./,
  },
  {
    name: 'KWOK',
    labels: { 'kwok.x-k8s.io/node': ['fake'], type: ['kwok', 'fake-kubelet'] },
    annotations: { 'kwok.x-k8s.io/node': ['fake'] },
    taints: { 'kwok.x-k8s.io/node': 'any', 'fake-kubelet/provider': 'any' },
    providerIds: /^kwok:/,
    info: { kubeletVersion: /^(fake|kwok)/ },
  },
  {
    // Each of its labels is also another's: edge of ingress nodes, agent of all nodes of AKS. So the labels count
    // together only, and not in AKS. The taint edge alone is one of ingress nodes, too.
    name: 'KubeEdge',
    together: {
      all: ['node-role.kubernetes.io/edge', 'node-role.kubernetes.io/agent'],
      none: /^kubernetes\.azure\.com\//,
    },
    info: { kubeletVersion: /kubeedge/i },
  },
  MARKED,
  {
    name: 'Virtual Kubelet',
    labels: { type: ['virtual-kubelet'], 'virtual-kubelet.io/provider': 'any' },
    taints: { 'virtual-kubelet.io/provider': 'any' },
    providerIds: /^virtual-kubelet:/,
    info: { kubeletVersion: /(^|[-+.])(vk|virtual-kubelet)[-+.]/, architecture: /^virtual-kubelet$/ },
  },
]

/** Decides what a Node is. Takes a Node as the API server sends it, or as a cache keeps it. Never throws. */
export function nodeMachine(node: unknown): NodeMachine {
  const signs = nodeSigns(node)
  if (signs.labels[LABEL_MACHINE] === 'true') return otherSystem(signs) ?? { is: 'machine' }
  for (const product of PRODUCTS) {
    const sign = signOf(product, signs)
    if (sign === undefined) continue
    const isLabelled = PRODUCTS.some((one) => labelSign(one, signs) !== undefined)
    const isSure = PRODUCTS.some((one) => sureSign(one, signs) !== undefined)
    const found = { is: 'virtual', product: product.name, sign, isLabelled, isSure } as const
    const onlyBy = isSure || isMarkedByUser(signs) ? undefined : weakSign(product, signs)
    return onlyBy === undefined ? found : { ...found, onlyBy }
  }
  return otherSystem(signs) ?? { is: 'machine' }
}

/** Whether the Node is a Linux machine of its own, which runs a routeagent. */
export function isMachine(node: unknown): boolean {
  return nodeMachine(node).is === 'machine'
}

/** `a virtual node (EKS Fargate)`, `a virtual node (Liqo, by its name alone)`, `a node with windows`; else undefined. */
export function machineText(machine: NodeMachine): string | undefined {
  if (machine.is === 'machine') return undefined
  if (machine.is === 'other-system') return `a node with ${machine.system}`
  const { product, onlyBy } = machine
  return `a virtual node (${product}${onlyBy === undefined ? '' : `, by its ${onlyBy} alone`})`
}

const OS = 'kubernetes.io/os'

/** A Node without a system is still being registered, and counts as Linux. */
function otherSystem({ labels, info, taints }: NodeSigns): NodeMachine | undefined {
  const fields: readonly (readonly [string | undefined, string])[] = [
    [labels[OS], `label ${OS}`],
    [labels['beta.kubernetes.io/os'], 'label beta.kubernetes.io/os'],
    [info['operatingSystem'], 'status.nodeInfo.operatingSystem'],
    [/^Windows/.test(info['osImage'] ?? '') ? 'windows' : undefined, 'status.nodeInfo.osImage'],
    [taints.find(({ key }) => key === 'node.kubernetes.io/os' || key === 'os')?.value, 'taint os'],
  ]
  const [found, where = ''] = fields.find(([system]) => system !== undefined && system !== '') ?? []
  const system = found?.toLowerCase()
  if (system === undefined || system === 'linux') return undefined
  return { is: 'other-system', system: system.slice(0, 63), sign: `${where}=${system.slice(0, 63)}` }
}

/** The kubelet of a usual distribution: `v1.33.5`, `v1.33.5+k3s1`, `v1.33.5+rke2r1`, `v1.33.5-gke.1234`. */
const ORDINARY_KUBELET = /^v?\d+\.\d+\.\d+(?:$|\+|-gke\.)/
/** EKS gives the nodes of Fargate the version of its machines. */
const EKS_KUBELET = /^v?\d+\.\d+\.\d+-eks-/

function signOf(product: Product, signs: NodeSigns): string | undefined {
  return (
    labelSign(product, signs) ??
    sureSign(product, signs) ??
    togetherSign(product, signs) ??
    (isNamed(product, signs) ? `name ${signs.name.slice(0, 253)}` : undefined)
  )
}

function weakSign(product: Product, signs: NodeSigns): 'name' | 'roles' | undefined {
  if (togetherSign(product, signs) !== undefined) return 'roles'
  return isNamed(product, signs) ? 'name' : undefined
}

function isNamed({ names }: Product, { name, info }: NodeSigns): boolean {
  return names?.test(name) === true && !ORDINARY_KUBELET.test(info['kubeletVersion'] ?? '')
}

/** The label that a join sets proves nothing: a join removes it where nothing else shows a virtual node for certain. */
function isMarkedByUser({ labels }: NodeSigns): boolean {
  const value = labels[LABEL_VIRTUAL_NODE]
  return labels[LABEL_MACHINE] === 'false' || (value !== undefined && value !== LABELLED_BY_JOIN)
}

function sureSign(product: Product, signs: NodeSigns): string | undefined {
  const { annotations = {}, taints = {}, providerIds, info = {} } = product
  const taint = signs.taints.find(({ key, value }) => Object.hasOwn(taints, key) && counts(taints[key], value))
  const field = Object.entries(info).find(([name, pattern]) => pattern.test(signs.info[name] ?? ''))?.[0]
  return (
    (product === MARKED ? undefined : labelSign(product, signs)) ??
    (taint === undefined ? undefined : `taint ${taint.key}${taint.value === '' ? '' : `=${taint.value}`}`) ??
    mapSign('annotation', annotations, signs.annotations) ??
    (providerIds?.test(signs.providerId) === true ? `spec.providerID ${signs.providerId.slice(0, 100)}` : undefined) ??
    (field === undefined ? undefined : `status.nodeInfo.${field} ${(signs.info[field] ?? '').slice(0, 100)}`)
  )
}

function labelSign({ labels = {} }: Product, signs: NodeSigns): string | undefined {
  return mapSign('label', labels, signs.labels)
}

function togetherSign({ together }: Product, { labels, taints, info }: NodeSigns): string | undefined {
  const kubelet = info['kubeletVersion'] ?? ''
  if (ORDINARY_KUBELET.test(kubelet) || EKS_KUBELET.test(kubelet)) return undefined
  if (together === undefined || Object.keys(labels).some((key) => together.none.test(key))) return undefined
  const isShown = together.all.every((key) => labels[key] !== undefined || taints.some((taint) => taint.key === key))
  return isShown ? `labels or taints ${together.all.join(' and ')}` : undefined
}

function mapSign(what: string, rules: Readonly<Record<string, Values>>, given: TextMap): string | undefined {
  for (const [key, values] of Object.entries(rules)) {
    const value = given[key]
    if (value !== undefined && counts(values, value)) return `${what} ${key}${value === '' ? '' : `=${value}`}`
  }
  return undefined
}

function counts(values: Values | undefined, value: string): boolean {
  return values === 'any' || values?.includes(value) === true
}

// The same labels as a node affinity.

/** One entry of `matchExpressions` (core/v1 NodeSelectorRequirement). */
export interface NodeRequirement {
  readonly key: string
  readonly operator: 'Exists' | 'DoesNotExist' | 'In' | 'NotIn'
  readonly values?: readonly string[]
}

/**
 * Gives the `nodeSelectorTerms` of a node affinity that leaves out every node whose labels show that it is no Linux
 * machine. A node has to match one of the terms: the second one is for nodes that LABEL_MACHINE states to be machines.
 * `more` are added to each term. No affinity can see the other signs.
 */
export function machineTerms(
  more: readonly NodeRequirement[] = [],
): readonly { readonly matchExpressions: readonly NodeRequirement[] }[] {
  const rules = new Map<string, Values>()
  for (const [key, values] of PRODUCTS.flatMap(({ labels = {} }) => Object.entries(labels))) {
    const before = rules.get(key) ?? []
    rules.set(key, before === 'any' || values === 'any' ? 'any' : [...before, ...values])
  }
  const without = [...rules]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, values]): NodeRequirement =>
      values === 'any' ? { key, operator: 'DoesNotExist' } : { key, operator: 'NotIn', values: [...values].sort() },
    )
  const linux: NodeRequirement = { key: OS, operator: 'In', values: ['linux'] }
  const stated: NodeRequirement = { key: LABEL_MACHINE, operator: 'In', values: ['true'] }
  return [{ matchExpressions: [...more, linux, ...without] }, { matchExpressions: [...more, linux, stated] }]
}
