/**
 * Finds the caches that answer pods in place of the cluster's DNS, such as NodeLocal DNSCache, by what they are and not
 * by their names: a DaemonSet that runs such a program, or a DNS server that listens on a link-local address (RFC 3927).
 */
import type { ObjectRef } from '../../kubeapi/kube/kube.ts'
import { formatAddress, isAddress, parseAddress } from '../../model/addresses/addresses.ts'
import { CorefileError, claimsOn } from '../../model/cluster-dns/cluster-dns.ts'
import { type DnsObject, configMapRef } from './dns-change.ts'

interface VolumeMount {
  readonly name?: string
  readonly mountPath?: string
  /** Mounts one file of the volume at `mountPath`. The file does not follow changes of the ConfigMap. */
  readonly subPath?: string
}

interface MapVolume {
  readonly name?: string
  readonly items?: readonly { readonly key?: string; readonly path?: string }[]
}

interface Container {
  readonly image?: string
  readonly command?: readonly string[]
  readonly args?: readonly string[]
  readonly env?: readonly { readonly value?: string }[]
  readonly ports?: readonly { readonly containerPort?: number }[]
  readonly volumeMounts?: readonly VolumeMount[]
}

interface PodTemplate {
  readonly metadata?: { readonly labels?: Readonly<Record<string, string>> }
  readonly spec?: {
    readonly hostNetwork?: boolean
    readonly containers?: readonly Container[]
    readonly volumes?: readonly {
      readonly name?: string
      readonly configMap?: MapVolume
      readonly projected?: { readonly sources?: readonly { readonly configMap?: MapVolume }[] }
    }[]
  }
}

/** `unknown` is any other DNS server, whose settings Sealane cannot write. */
export type CacheProgram = 'node-cache' | 'coredns' | 'unknown'

export interface DnsCache {
  readonly workload: DnsObject
  readonly program: CacheProgram
}

export const DAEMON_SETS = { apiVersion: 'apps/v1', kind: 'DaemonSet' } as const
/** Cilium hands the queries for a Service to the pods of a DaemonSet that such a policy selects. */
export const REDIRECTS = { apiVersion: 'cilium.io/v2', kind: 'CiliumLocalRedirectPolicy' } as const

/** The usual ConfigMaps of NodeLocal DNSCache: they count as caches also where no DaemonSet was read. */
export const KNOWN_CACHE_MAPS = [configMapRef('node-local-dns'), configMapRef('nodelocaldns')]
/** The label of nodes on which AKS runs its LocalDNS, a service of the machine. */
export const AKS_LOCAL_DNS = 'kubernetes.azure.com/localdns-state'

/** All caches among the objects. */
export function findDnsCaches(present: readonly DnsObject[]): readonly DnsCache[] {
  return present.flatMap((workload) => {
    const program = programOf(present, workload)
    return program === undefined ? [] : [{ workload, program }]
  })
}

/** Whether a DaemonSet runs a DNS server, which is a cache if it also listens on a link-local address. */
export function runsDnsServer(workload: DnsObject): boolean {
  return containersOf(workload).some((container) => isNodeCache(container) || isDnsServer(container))
}

export function isDnsCache(present: readonly DnsObject[], workload: DnsObject): boolean {
  return programOf(present, workload) !== undefined
}

const NODE_CACHE = /(^|[-_.])(dns-?)?node-?cache|node-?local-?dns/
const DNS_SERVER =
  /coredns|dnsmasq|unbound|kresd|knot-resolver|recursor|pdnsd|dnsdist|dnscache|dns-cache|bind9|named|blocky|smartdns|mosdns|rbldnsd|dns-proxy/
const LINK_LOCAL = /(^|[^0-9.])169\.254\.\d{1,3}\.\d{1,3}($|[^0-9.])|(^|[^0-9a-f:])fe[89ab][0-9a-f]:/i
const BINDS_LINK_LOCAL = /^\s*bind\s[^#\n]*(169\.254\.\d|\bfe[89ab][0-9a-f]:)/im

function programOf(present: readonly DnsObject[], workload: DnsObject): CacheProgram | undefined {
  if (workload.kind !== 'DaemonSet') return undefined
  const containers = containersOf(workload)
  if (containers.some(isNodeCache)) return 'node-cache'
  const server = containers.find((container) => isDnsServer(container))
  if (server === undefined) return undefined
  const inFront =
    listensLinkLocal(present, workload) ||
    listensOnDummy(present, workload) ||
    isRedirectedTo(present, workload) ||
    NODE_CACHE.test(workload.metadata.name)
  if (!inFront) return undefined
  return containers.some(isCoreDns) ? 'coredns' : 'unknown'
}

function templateOf(workload: DnsObject): PodTemplate {
  return (workload.spec?.['template'] as PodTemplate | undefined) ?? {}
}

function containersOf(workload: DnsObject): readonly Container[] {
  return templateOf(workload).spec?.containers ?? []
}

/** The last part of the image's name, without tag and digest: `k8s-dns-node-cache`. */
function imageName({ image = '' }: Container): string {
  const name = image.replace(/@.*$/, '').split('/').at(-1) ?? ''
  return name.replace(/:.*$/, '').toLowerCase()
}

function wordsOf({ command = [], args = [] }: Container): readonly string[] {
  return [...command, ...args]
}

function isNodeCache(container: Container): boolean {
  const words = wordsOf(container)
  const isProgram = /(^|\/)node-cache$/.test(container.command?.[0] ?? '')
  // Images of private registries have any name.
  const hasFlags = flag(words, 'localip') !== undefined && flag(words, 'conf') !== undefined
  return isProgram || hasFlags || NODE_CACHE.test(imageName(container))
}

function isCoreDns(container: Container): boolean {
  return (
    /coredns/.test(imageName(container)) ||
    /(^|\/)coredns$/.test(container.command?.[0] ?? '') ||
    /corefile/i.test(flag(wordsOf(container), 'conf') ?? '')
  )
}

function isDnsServer(container: Container): boolean {
  return (
    isCoreDns(container) ||
    DNS_SERVER.test(imageName(container)) ||
    DNS_SERVER.test(container.command?.[0] ?? '') ||
    (container.ports ?? []).some(({ containerPort }) => containerPort === 53)
  )
}

function listensLinkLocal(present: readonly DnsObject[], workload: DnsObject): boolean {
  const texts = containersOf(workload).flatMap((container) => [
    ...wordsOf(container),
    ...(container.env ?? []).map(({ value = '' }) => value),
  ])
  if (texts.some((text) => LINK_LOCAL.test(text))) return true
  const maps = new Set(mountedMaps(workload).map(({ name }) => name))
  return present.some(
    ({ kind, metadata, data = {} }) =>
      kind === 'ConfigMap' &&
      metadata.namespace === workload.metadata.namespace &&
      maps.has(metadata.name) &&
      Object.values(data).some((text) => BINDS_LINK_LOCAL.test(text)),
  )
}

/**
 * Whether a CoreDNS on the network of the nodes binds an address that is none of a node, and serves or forwards the
 * names of the cluster. One ConfigMap serves all nodes, so such an address is that of a dummy device on each of them,
 * to which kubelets point the pods. A resolver for others may have such an address too: anycast or VRRP.
 */
function listensOnDummy(present: readonly DnsObject[], workload: DnsObject): boolean {
  return dummyAddresses(present, workload).length > 0 && answersCluster(present, workload)
}

/** A DNS server that may answer pods in place of the cluster DNS, and is not taken for a cache. */
export interface UnsureCache {
  readonly workload: DnsObject
  /** Those that it binds and no node has. */
  readonly addresses: readonly string[]
}

/** The servers that would be caches if their Corefile named the cluster's domain. */
export function findUnsureCaches(present: readonly DnsObject[]): readonly UnsureCache[] {
  return present
    .filter((workload) => isUnsureCache(present, workload))
    .map((workload) => ({ workload, addresses: dummyAddresses(present, workload) }))
}

export function isUnsureCache(present: readonly DnsObject[], workload: DnsObject): boolean {
  return dummyAddresses(present, workload).length > 0 && !isDnsCache(present, workload)
}

/** The bound addresses that no Node has. None if no Node was read: then it is not known. */
function dummyAddresses(present: readonly DnsObject[], workload: DnsObject): readonly string[] {
  const nodes = present.filter(({ kind }) => kind === 'Node')
  if (nodes.length === 0) return []
  const ofNodes = new Set(nodes.flatMap(nodeAddresses))
  return boundAddresses(present, workload).filter((address) => !ofNodes.has(address))
}

/** Whether the Corefile has a block or a plugin for the domain of the cluster. */
function answersCluster(present: readonly DnsObject[], workload: DnsObject): boolean {
  const all = present.flatMap(({ kind, data = {} }) => (kind === 'ConfigMap' ? Object.values(data) : []))
  const words = all.flatMap((text) => [...text.matchAll(SERVES)].flatMap(([, list = '']) => list.split(/\s+/)))
  const domains = words.map((word) => word.toLowerCase().replace(/\.$/, '')).filter((word) => ZONE.test(word))
  const texts = mountedTexts(present, workload)
  return [...new Set(['cluster.local', ...domains])].some((domain) => texts.some((text) => answers(text, domain)))
}

/** The zones of the plugin kubernetes, without the reverse ones. */
const SERVES = /^\s*kubernetes\s+([^#{\n]*)/gim
const ZONE = /^(?!(?:.*\.)?arpa$)[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/

function answers(text: string, domain: string): boolean {
  try {
    return claimsOn(text, domain).length > 0
  } catch (error) {
    if (!(error instanceof CorefileError)) throw error
    return false
  }
}

/** The values of the ConfigMaps that the pods mount. */
function mountedTexts(present: readonly DnsObject[], workload: DnsObject): readonly string[] {
  const maps = new Set(mountedMaps(workload).map(({ name }) => name))
  return present.flatMap(({ kind, metadata, data = {} }) =>
    kind === 'ConfigMap' && metadata.namespace === workload.metadata.namespace && maps.has(metadata.name)
      ? Object.values(data)
      : [],
  )
}

/**
 * The addresses that the Corefile of a DNS server on the network of the nodes binds, without loopback, in canonical
 * form.
 */
export function boundAddresses(present: readonly DnsObject[], workload: DnsObject): readonly string[] {
  const { metadata: { labels = {} } = {}, spec: { hostNetwork } = {} } = templateOf(workload)
  const isOfCluster = SERVER_APPS.has(labels['k8s-app'] ?? '')
  if (workload.kind !== 'DaemonSet' || hostNetwork !== true || isOfCluster) return []
  if (!containersOf(workload).some(isCoreDns)) return []
  const words = mountedTexts(present, workload).flatMap((text) =>
    [...text.matchAll(BINDS)].flatMap(([, list = '']) => list.split(/\s+/)),
  )
  return words.flatMap(canonical).filter((address) => !OF_EACH_MACHINE.test(address))
}

/** The pods of the cluster's own DNS have one of these labels `k8s-app`. */
const SERVER_APPS: ReadonlySet<string> = new Set(['kube-dns', 'coredns'])
const BINDS = /^\s*bind\s+([^#{\n]*)/gim
/** Loopback and unspecified addresses. */
const OF_EACH_MACHINE = /^(127\.|0\.0\.0\.0$|::1?$)/

function nodeAddresses(node: DnsObject): readonly string[] {
  const { addresses = [] } = (node['status'] ?? {}) as { readonly addresses?: readonly { readonly address?: string }[] }
  return addresses.flatMap(({ address = '' }) => canonical(address))
}

/** Empty if it is no IP address. */
function canonical(text: string): readonly string[] {
  return isAddress(text) ? [formatAddress(parseAddress(text))] : []
}

/** The Nodes that have one of the addresses, which are in canonical form. */
export function nodesWith(nodes: readonly DnsObject[], addresses: readonly string[]): readonly DnsObject[] {
  return nodes.filter((node) => nodeAddresses(node).some((one) => addresses.includes(one)))
}

interface RedirectSpec {
  readonly redirectBackend?: {
    readonly localEndpointSelector?: { readonly matchLabels?: Readonly<Record<string, string>> }
    readonly toPorts?: readonly { readonly port?: string | number }[]
  }
}

function isRedirectedTo(present: readonly DnsObject[], workload: DnsObject): boolean {
  const labels = templateOf(workload).metadata?.labels ?? {}
  return present.some(({ kind, metadata, spec }) => {
    if (kind !== REDIRECTS.kind || metadata.namespace !== workload.metadata.namespace) return false
    const { localEndpointSelector, toPorts = [] } = (spec as RedirectSpec | undefined)?.redirectBackend ?? {}
    // Cilium prefixes labels that come from Kubernetes.
    const wanted = Object.entries(localEndpointSelector?.matchLabels ?? {})
    const isSelected = wanted.every(([key, value]) => labels[key.replace(/^(k8s|any)[:.]/, '')] === value)
    return wanted.length > 0 && isSelected && toPorts.some(({ port }) => String(port) === '53')
  })
}

/** The value of `-name VALUE` or `--name=VALUE`, as Go reads flags. */
function flag(words: readonly string[], name: string): string | undefined {
  const at = words.findIndex((word) => new RegExp(`^--?${name}(?:=|$)`).test(word))
  const word = words[at]
  if (word === undefined) return undefined
  return word.includes('=') ? word.slice(word.indexOf('=') + 1) : words[at + 1]
}

export interface CorefileMount {
  /** Name of a ConfigMap in the namespace of the workload. */
  readonly map: string
  /** Undefined if the mounted items do not have the file. */
  readonly key: string | undefined
  /** False if the pod keeps the text that the ConfigMap had when the pod started. */
  readonly follows: boolean
}

/** node-cache writes its Corefile itself, from this template (k8s.io/dns, cmd/node-cache/app/cache_app.go). */
const TEMPLATE = '/etc/coredns/Corefile.base'

/** Follows `-conf /etc/coredns/Corefile`, or the template of node-cache, to the ConfigMap that is mounted there. */
export function corefileMounts(workload: DnsObject): readonly CorefileMount[] {
  return containersOf(workload).flatMap((container) => {
    const words = wordsOf(container)
    const paths = isNodeCache(container)
      ? [flag(words, 'basecorefile') ?? TEMPLATE, flag(words, 'conf') ?? '/etc/coredns/Corefile']
      : [flag(words, 'conf')]
    const found = paths.flatMap((path) => (path === undefined ? [] : mountOf(workload, container, path)))
    return (found.some(({ key }) => key !== undefined) ? found.filter(({ key }) => key !== undefined) : found).slice(
      0,
      1,
    )
  })
}

function mountOf(workload: DnsObject, { volumeMounts = [] }: Container, path: string): CorefileMount[] {
  if (!path.startsWith('/')) return []
  const folder = path.slice(0, path.lastIndexOf('/'))
  const exact = volumeMounts.find(({ mountPath, subPath }) => mountPath === path && subPath !== undefined)
  const mount = exact ?? volumeMounts.find(({ mountPath }) => mountPath?.replace(/\/$/, '') === folder)
  const inVolume = exact?.subPath ?? path.slice(path.lastIndexOf('/') + 1)
  const maps = mount?.name === undefined ? [] : volumeMaps(workload, mount.name)
  const holder =
    maps.find(({ items }) => items?.some((item) => item.path === inVolume) === true) ??
    maps.find(({ items }) => items === undefined) ??
    maps[0]
  if (holder?.name === undefined) return []
  const key = holder.items === undefined ? inVolume : holder.items.find((item) => item.path === inVolume)?.key
  return [{ map: holder.name, key, follows: mount?.subPath === undefined }]
}

function volumeMaps(workload: DnsObject, volume: string): readonly MapVolume[] {
  const found = (templateOf(workload).spec?.volumes ?? []).filter(({ name }) => name === volume)
  return found.flatMap(({ configMap, projected }) => [
    ...(configMap === undefined ? [] : [configMap]),
    ...(projected?.sources ?? []).flatMap((source) => (source.configMap === undefined ? [] : [source.configMap])),
  ])
}

/** All ConfigMaps that the pods of a workload mount. */
export function mountedMaps(workload: DnsObject): readonly ObjectRef[] {
  const names = (templateOf(workload).spec?.volumes ?? [])
    .flatMap(({ name = '' }) => volumeMaps(workload, name))
    .flatMap(({ name }) => (name === undefined ? [] : [name]))
  return [...new Set(names)].map((name) => configMapRef(name, workload.metadata.namespace))
}

/**
 * The name of the ConfigMap that is mounted in the directory from which a top-level import of the Corefile reads
 * `*.server`. Undefined if none is.
 */
export function importedMap(workload: DnsObject | undefined, pattern: string): string | undefined {
  if (workload === undefined) return undefined
  const folder = pattern.slice(0, pattern.lastIndexOf('/'))
  const mounts = containersOf(workload).flatMap(({ volumeMounts = [] }) => volumeMounts)
  const volume = mounts.find(({ mountPath = '' }) => mountPath === folder || mountPath.endsWith(`/${folder}`))?.name
  return volume === undefined ? undefined : volumeMaps(workload, volume)[0]?.name
}
