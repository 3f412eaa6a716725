/**
 * Finds the products of a cluster: the workload of each, its namespace, and its settings in that namespace. This file
 * is the only one that reads ConfigMaps, so no detector can look for settings in a namespace that the product is not in.
 */
import type { ObjectRef } from '../../kubeapi/kube/kube.ts'
import { SYSTEM_NAMESPACE } from '../../model/model.ts'
import { type World, at, containersOf, labelOf, listAt, nameOf, pathOf, podSpecOf, textAt } from './snapshot.ts'

interface ProductRow {
  /** The kind of its workload. Undefined for a product that consists of settings only. */
  readonly kind?: 'DaemonSet' | 'Deployment'
  /** The usual names of its workload, the most usual first. */
  readonly names: readonly string[]
  /** Names of containers. One of them, or the image, makes a workload in an unusual namespace count. */
  readonly containers: readonly string[]
  readonly image?: RegExp
  /** The namespaces of its usual installations, the most usual first. */
  readonly usual: readonly string[]
  /** The names of its ConfigMaps, in addition to those that its workload mounts. */
  readonly settings: readonly string[]
  /** The findings that depend on the settings. */
  readonly for: readonly string[]
}

const PODS = 'pod CIDRs'
const SERVICES = 'service CIDRs'
const CNI = 'CNI'
const PROXY = 'service proxy'
const DNS = 'cluster DNS'

function daemon(row: Omit<ProductRow, 'kind'>): ProductRow {
  return { kind: 'DaemonSet', ...row }
}

const ROWS = {
  cilium: daemon({
    names: ['cilium'],
    containers: ['cilium-agent'],
    image: /(^|\/)cilium(-ci|-dev)?[:@]/,
    usual: ['kube-system', 'cilium', 'cilium-system'],
    settings: ['cilium-config'],
    for: [CNI, PODS, PROXY],
  }),
  anetd: daemon({ names: ['anetd'], containers: [], usual: ['kube-system'], settings: [], for: [] }),
  calico: daemon({
    names: ['calico-node', 'rke2-calico'],
    containers: ['calico-node'],
    image: /(^|\/)(calico-)?node(-linux)?[:@].*calico|calico\/node[:@]/,
    usual: ['kube-system', 'calico-system'],
    settings: ['calico-config'],
    for: [CNI],
  }),
  canal: daemon({
    names: ['canal', 'rke2-canal'],
    containers: ['calico-node', 'kube-flannel'],
    usual: ['kube-system'],
    settings: ['canal-config', 'rke2-canal-config'],
    for: [CNI],
  }),
  flannel: daemon({
    names: ['kube-flannel-ds', 'kube-flannel', 'kube-flannel-ds-amd64', 'kube-flannel-ds-arm64', 'flannel'],
    containers: ['kube-flannel'],
    image: /(^|\/)flannel[:@]/,
    usual: ['kube-flannel', 'kube-system'],
    settings: ['kube-flannel-cfg'],
    for: [PODS],
  }),
  kubeRouter: daemon({
    names: ['kube-router'],
    containers: ['kube-router'],
    image: /(^|\/)kube-router[:@]/,
    usual: ['kube-system', 'kube-router'],
    settings: [],
    for: [],
  }),
  weave: daemon({
    names: ['weave-net'],
    containers: ['weave'],
    image: /(^|\/)weave-kube[:@]/,
    usual: ['kube-system', 'weave'],
    settings: [],
    for: [],
  }),
  kindnet: daemon({
    names: ['kindnet'],
    containers: ['kindnet-cni', 'kindnet'],
    image: /(^|\/)kindnetd?[:@]/,
    usual: ['kube-system'],
    settings: [],
    for: [],
  }),
  antrea: daemon({
    names: ['antrea-agent'],
    containers: ['antrea-agent'],
    image: /(^|\/)antrea-(agent|ubuntu|ubi)[a-z0-9-]*[:@]/,
    usual: ['kube-system', 'antrea-system'],
    settings: ['antrea-config'],
    for: [CNI],
  }),
  ovnKubernetes: daemon({
    names: ['ovnkube-node'],
    containers: ['ovnkube-node', 'ovnkube-controller', 'ovn-controller'],
    image: /(^|\/)ovn-(daemonset|kube)[a-z0-9-]*[:@]/,
    usual: ['openshift-ovn-kubernetes', 'ovn-kubernetes', 'kube-system'],
    settings: ['ovn-config'],
    for: [PODS],
  }),
  awsVpc: daemon({
    names: ['aws-node'],
    containers: ['aws-node'],
    image: /(^|\/)amazon-k8s-cni[:@]/,
    usual: ['kube-system'],
    settings: [],
    for: [],
  }),
  azure: daemon({
    names: ['azure-cns'],
    containers: ['cns-container'],
    image: /(^|\/)azure-cns[:@]/,
    usual: ['kube-system'],
    settings: [],
    for: [],
  }),
  kubeProxy: daemon({
    names: ['kube-proxy', 'openshift-kube-proxy'],
    containers: ['kube-proxy'],
    image: /(^|\/)kube-proxy[a-z0-9-]*[:@]/,
    usual: ['kube-system', 'openshift-kube-proxy', 'kube-proxy'],
    settings: ['kube-proxy', 'kube-proxy-config', 'proxy-config'],
    for: [PROXY],
  }),
  coredns: {
    kind: 'Deployment',
    names: ['coredns', 'rke2-coredns-rke2-coredns', 'kube-dns'],
    containers: ['coredns'],
    image: /(^|\/)(hardened-|mirrored-coredns-)?coredns[:@]/,
    usual: ['kube-system'],
    settings: ['coredns', 'rke2-coredns-rke2-coredns', 'coredns-custom'],
    for: [DNS],
  },
  kubeDns: {
    kind: 'Deployment',
    names: ['kube-dns'],
    containers: ['kubedns'],
    usual: ['kube-system'],
    settings: [],
    for: [],
  },
  // kubeadm stores its settings in a fixed place and has no workload.
  kubeadm: {
    names: [],
    containers: [],
    usual: ['kube-system'],
    settings: ['kubeadm-config'],
    for: [PODS, SERVICES, 'distribution'],
  },
  // Sealane itself.
  sealane: {
    names: [],
    containers: [],
    usual: [SYSTEM_NAMESPACE],
    settings: ['sealane-site'],
    for: ['an earlier install'],
  },
} as const satisfies Readonly<Record<string, ProductRow>>

export type ProductName = keyof typeof ROWS

function rowOf(name: ProductName): ProductRow {
  return ROWS[name]
}

/** A product that is in the cluster. */
export interface Product {
  readonly name: ProductName
  readonly namespace: string
  /** Its DaemonSet or Deployment. Undefined if only its settings were found. */
  readonly workload: unknown
}

/**
 * The installation of a product that counts. A workload that runs on nodes precedes one that is switched off, and a
 * usual namespace precedes others. In an unusual namespace the name alone proves nothing: a container or an image of
 * the product has to be in it. If there is no workload, a usual namespace with its settings counts.
 */
export function findProduct(world: World, name: ProductName): Product | undefined {
  const found = bestWorkload(world, name)
  if (found !== undefined && !counts(world, found)) return undefined
  if (found !== undefined) return { name, namespace: namespaceOf(found), workload: found }
  const { usual, settings } = rowOf(name)
  const namespace = usual.find((one) => settings.some((map) => settingsMap(world, one, map) !== undefined))
  return namespace === undefined ? undefined : { name, namespace, workload: undefined }
}

/**
 * The DaemonSet or Deployment of a product, wherever it is. Undefined if there is none. A switched-off one is the
 * remainder of a product that another one has replaced, so it counts only if no product of the cluster runs.
 */
export function workloadOf(world: World, name: ProductName): unknown {
  const found = bestWorkload(world, name)
  return found === undefined || counts(world, found) ? found : undefined
}

/** Whether products run, by the snapshot: each question about a product depends on it. */
const RUNNING = new WeakMap<World, boolean>()

function counts(world: World, workload: unknown): boolean {
  if (!isSwitchedOff(workload)) return true
  const known = RUNNING.get(world)
  if (known !== undefined) return !known
  const rows = (Object.keys(ROWS) as ProductName[]).map(rowOf).filter(({ kind }) => kind === 'DaemonSet')
  const runs = world.list('DaemonSet').some((one) => !isSwitchedOff(one) && rows.some((row) => isOfProduct(one, row)))
  RUNNING.set(world, runs)
  return !runs
}

function bestWorkload(world: World, name: ProductName): unknown {
  const row = rowOf(name)
  if (row.kind === undefined) return undefined
  const rank = (one: unknown): number => {
    const [place, called] = [row.usual.indexOf(namespaceOf(one)), row.names.indexOf(nameOf(one))]
    return (isSwitchedOff(one) ? 10_000 : 0) + (place < 0 ? 99 : place) * 100 + (called < 0 ? 99 : called)
  }
  return world
    .list(row.kind)
    .filter((one) => isOfProduct(one, row))
    .reduce((best, one) => (best === undefined || rank(one) < rank(best) ? one : best), undefined)
}

function isOfProduct(workload: unknown, row: ProductRow): boolean {
  const isCalled = row.names.includes(nameOf(workload))
  if (isCalled && row.usual.includes(namespaceOf(workload))) return true
  const hasPart = containersOf(workload).some((container) => {
    const image = textAt(container, 'image') ?? ''
    return row.containers.includes(textAt(container, 'name') ?? '') || row.image?.test(image) === true
  })
  // Helm names the Deployment of a DNS server after the release. A label then marks the server of the cluster.
  return hasPart && (isCalled || (row.kind === 'Deployment' && isClusterServer(workload)))
}

function isClusterServer(workload: unknown): boolean {
  const app = labelOf(workload, 'k8s-app')
  return app === 'kube-dns' || app === 'coredns' || labelOf(workload, 'kubernetes.io/cluster-service') === 'true'
}

/** A DaemonSet whose node selector matches no node, such as that of a product that was replaced. */
function isSwitchedOff(workload: unknown): boolean {
  return at(workload, 'status', 'desiredNumberScheduled') === 0
}

function namespaceOf(object: unknown): string {
  return textAt(object, 'metadata', 'namespace') ?? ''
}

// The settings of a product.

/** The value of one key of a ConfigMap, and the name of the ConfigMap for messages. */
export interface ConfigText {
  readonly text: string
  readonly where: string
}

/** The first ConfigMap of the product that has one of these keys. Undefined if there is none. */
export function configText(
  world: World,
  product: Product | undefined,
  ...keys: readonly string[]
): ConfigText | undefined {
  for (const object of settingsOf(world, product)) {
    for (const key of keys) {
      const text = textAt(object, 'data', key)
      if (text !== undefined) return { text, where: `${pathOf(object)} ${key}` }
    }
  }
  return undefined
}

/** The ConfigMaps of the product in its namespace: those that its workload mounts, then those of the usual names. */
export function settingsOf(world: World, product: Product | undefined): readonly unknown[] {
  if (product === undefined) return []
  return settingsNames(product.name, product.workload).flatMap((name) => {
    const found = settingsMap(world, product.namespace, name)
    return found === undefined ? [] : [found]
  })
}

/** The ConfigMap of this name among the settings of the product. */
export function settingsNamed(world: World, product: Product | undefined, name: string): unknown {
  return settingsOf(world, product).find((object) => nameOf(object) === name)
}

function settingsMap(world: World, namespace: string, name: string): unknown {
  return world.list(CONFIG_MAP, '').find((one) => nameOf(one) === name && namespaceOf(one) === namespace)
}

const CONFIG_MAP = 'ConfigMap'
/** A workload that mounts more ConfigMaps than this is none of these products. */
const MOST_MOUNTED = 8

function settingsNames(name: ProductName, workload: unknown): string[] {
  const volumes = listAt(podSpecOf(workload), 'volumes').map((volume) => textAt(volume, 'configMap', 'name'))
  const mounted = volumes.filter((one) => one !== undefined).slice(0, MOST_MOUNTED)
  return [...new Set([...mounted, ...rowOf(name).settings])]
}

/** One ConfigMap to read from the cluster. */
export interface WantedSettings {
  readonly namespace: string
  readonly name: string
  readonly for: readonly string[]
}

/**
 * The ConfigMaps to read, given the workloads: those in the namespace of each product. In the usual namespaces if its
 * workload is not there, or may not be read. A missing right counts only for the first of them.
 */
export function wantedSettings(world: World): WantedSettings[] {
  const wanted = new Map<string, WantedSettings>()
  for (const name of Object.keys(ROWS) as ProductName[]) {
    const workload = bestWorkload(world, name)
    const row = rowOf(name)
    const namespaces = workload === undefined ? row.usual : [namespaceOf(workload)]
    for (const [i, namespace] of namespaces.entries()) {
      for (const map of settingsNames(name, workload)) {
        const isFirst = i === 0 && row.settings.includes(map)
        const key = `${namespace}/${map}`
        if (!wanted.has(key)) wanted.set(key, { namespace, name: map, for: isFirst ? row.for : [] })
      }
    }
  }
  return [...wanted.values()]
}

/** Where the Service of the cluster DNS may be: with the server, then at the usual places. */
export function dnsServices(world: World): readonly { readonly namespace: string; readonly name: string }[] {
  const product = findProduct(world, 'coredns')
  // Helm gives the Service the name of the Deployment.
  const own = nameOf(product?.workload)
  const names = [...new Set([...DNS_SERVICES, ...(own === '' ? [] : [own])])]
  const namespaces = product === undefined ? ROWS.coredns.usual : [product.namespace]
  return [
    ...namespaces.flatMap((namespace) => names.map((name) => ({ namespace, name }))),
    { namespace: 'openshift-dns', name: 'dns-default' },
  ]
}

/** The workload of the cluster's own CoreDNS. Undefined if there is none. */
export function dnsServer(world: World): ObjectRef | undefined {
  const product = findProduct(world, 'coredns')
  if (product?.workload === undefined) return undefined
  return { apiVersion: 'apps/v1', kind: 'Deployment', namespace: product.namespace, name: nameOf(product.workload) }
}

const DNS_SERVICES = ['kube-dns', 'rke2-coredns-rke2-coredns', 'coredns']
