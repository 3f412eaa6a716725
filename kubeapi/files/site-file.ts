/** site.yaml: the paths and the properties of a site, with or without Kubernetes. */
import { readFile, stat } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { z } from 'zod'
import {
  type OpenPort,
  formatAddressPort,
  overlaps,
  parseAddressPort,
  parseOpenPort,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { EXPOSURES, type Exposure } from '../../model/access/access.ts'
import {
  type CalledAt,
  DEFAULT_ACTIVE_GATEWAYS,
  MAX_FIRST_PORT,
  MAX_LANE,
  PUBLIC_ADDRESS_EXPECTED,
  calledAt,
  firstPortProblem,
  firstPublicPort,
  isCalledAlike,
  overlayPortProblem,
  relayProblem,
  portRange,
  publicAddressProblem,
} from '../../model/lanes/lanes.ts'
import { MAX_LISTED_NAMESPACES } from '../../model/values/values.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { isMissing } from './atomic-write.ts'
import {
  choice,
  cidr,
  dnsLabel,
  dnsSubdomain,
  integer,
  list,
  text,
  textMap,
  textThat,
} from '../../model/kinds/kinds.ts'
import type { FieldPath } from '../../model/schemas/schemas.ts'
import { type FileProblem, InvalidFileError } from './problem-board.ts'
import { type SourceDocument, readSource, schemaProblems } from './yaml-source.ts'
import { OFFLOAD_SETTINGS, type OffloadSetting, SYSTEM_NAMESPACE, VXLAN_PORT } from '../../model/model.ts'

/** Its public address is absent behind NAT, or if the node's own address is reachable. */
export interface SiteGateway extends CalledAt {
  readonly node: string
  /** The only lane number that this node may serve. If absent, one that no other gateway has. */
  readonly lane?: number
}

/** The API server of a site that is a Kubernetes cluster. */
export interface KubernetesAccess {
  /** Absolute path. If absent, the default rules apply; in a pod, its own ServiceAccount. */
  readonly kubeconfig?: string
  readonly context?: string
  /** The namespace of Sealane's own objects. */
  readonly namespace: string
}

export interface SiteConfig {
  /** Absolute path of the site file, and the folder it lies in. */
  readonly file: string
  readonly folder: string
  /** metadata.name: the cluster id unless `join --cluster-id` says otherwise. */
  readonly name: string
  /** Absolute paths. */
  readonly objects: string
  readonly state: string
  /** `<state>/identity`: keys and certificates, mode 0700. */
  readonly identity: string
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  readonly labels: Readonly<Record<string, string>>
  /** Namespaces that are exported and imported although they are guarded (`default`, kube-*, …) or excluded. */
  readonly allowedNamespaces: readonly string[]
  /** Namespaces that are neither exported nor imported, besides the guarded ones. */
  readonly excludedNamespaces: readonly string[]
  /** What other members may call. Undefined if the file does not say: all pods, as before there was a choice. */
  readonly exposure?: Exposure
  /**
   * Whether routing drops what comes from other clusters while nodes have no access rules. Undefined if the file does not
   * say: then XFRM policies drop what is for pods. false: nothing does.
   */
  readonly failClosed?: boolean
  /** Absent on a site without Kubernetes, whose objects are files. */
  readonly kubernetes?: KubernetesAccess
  /** Gateways of a site without Kubernetes; in a Kubernetes cluster, Nodes have the label sealane.io/gateway. */
  readonly gateways: readonly SiteGateway[]
  /** The number of active gateways, among those without a lane number. */
  readonly activeGateways: number
  /** The age at which a gateway rotates its key; 0 turns rotation by age off. Undefined: the gateway's default. */
  readonly keyRotationDays?: number
  /**
   * Minutes without traffic after which a link sleeps; 0: never. Undefined: the gateway's default, which depends on the
   * size of the clusterset.
   */
  readonly linkSleepMinutes?: number
  /** Ports of the nodes that pods of other clusters may connect to. */
  readonly openHostPorts: readonly OpenPort[]
  /** Where nodes that do not see the folder of the site reach it: `address:port`. Empty if there are none. */
  readonly hub: { readonly listen: readonly string[] }
  /** The overlay between the nodes. */
  readonly overlay: {
    /** The UDP port, which must be the same on all nodes. */
    readonly port: number
    /** Whether its device leaves checksums to the network card. */
    readonly checksumOffload: OffloadSetting
  }
  readonly dns: {
    /** `address:port` */
    readonly listen: readonly string[]
    /** `address:port`; the port is 53 if the file has none. */
    readonly upstreams: readonly string[]
    /** CIDRs of clients whose queries are forwarded to upstreams, besides pods, nodes and networks of the machine. */
    readonly forwardFor: readonly string[]
  }
}

const folderPath = textThat('a path', (value) => value !== '')
const listenAddress = textThat('address:port such as 10.42.0.1:53', (v) => isAddressPort(v))
const upstream = textThat('an address or address:port such as 192.0.2.53', (v) => isAddressPort(v, DNS_PORT))

const openHostPort = textThat('a protocol and a port such as tcp/9100 or udp/53', (v) => {
  return parseOpenPort(v) !== undefined
})

const publicAddress = textThat(PUBLIC_ADDRESS_EXPECTED, (v) => publicAddressProblem(v) === undefined)
const hubAddress = textThat('the address:port of one machine, such as 192.0.2.1:9474', (v) => {
  return isAddressPort(v) && !/^(0\.0\.0\.0|\[::\]):/.test(v)
})

const DNS_PORT = 53
/** The default state folder of a node in a Kubernetes cluster, for lane keys. */
const NODE_STATE = '/var/lib/sealane'

const siteSchema = z.strictObject(
  {
    apiVersion: choice(['sealane.io/v1alpha1']),
    kind: choice(['Site']),
    metadata: z.strictObject(
      { name: dnsLabel(), labels: textMap().optional(), annotations: textMap().optional() },
      { error: 'a map' },
    ),
    spec: z.strictObject(
      {
        objects: folderPath.optional(),
        state: folderPath.optional(),
        kubernetes: z
          .strictObject(
            {
              kubeconfig: folderPath.optional(),
              context: text().optional(),
              namespace: dnsLabel().default(SYSTEM_NAMESPACE),
            },
            { error: 'a map' },
          )
          .optional(),
        podCIDRs: list(cidr()),
        serviceCIDRs: list(cidr()).default([]),
        labels: textMap().default({}),
        allowedNamespaces: list(dnsLabel(), '', MAX_LISTED_NAMESPACES).default([]),
        excludedNamespaces: list(dnsLabel(), '', MAX_LISTED_NAMESPACES).default([]),
        exposure: choice(EXPOSURES).optional(),
        failClosed: z.boolean({ error: 'true or false' }).optional(),
        gateways: list(
          z.strictObject(
            {
              node: dnsSubdomain(),
              lane: integer(0, MAX_LANE).optional(),
              publicAddress: publicAddress.optional(),
              publicPort: integer(1, MAX_FIRST_PORT).optional(),
              listenPort: integer(1, MAX_FIRST_PORT).optional(),
              relay: z.literal(true, { error: 'true' }).optional(),
              portMapping: z.literal(false, { error: 'false' }).optional(),
            },
            { error: 'a map' },
          ),
        ).default([]),
        activeGateways: integer(1, MAX_LANE + 1).optional(),
        keyRotationDays: integer(0, 3650).optional(),
        linkSleepMinutes: integer(0, 1440).optional(),
        openHostPorts: list(openHostPort).default([]),
        hub: z.strictObject({ listen: list(hubAddress).default([]) }, { error: 'a map' }).default({ listen: [] }),
        overlay: z
          .strictObject(
            { port: integer(1, 0xffff).optional(), checksumOffload: choice(OFFLOAD_SETTINGS).optional() },
            { error: 'a map' },
          )
          .optional(),
        dns: z
          .strictObject(
            {
              listen: list(listenAddress).default([]),
              upstreams: list(upstream).default([]),
              forwardFor: list(cidr()).default([]),
            },
            { error: 'a map' },
          )
          .default({ listen: [], upstreams: [], forwardFor: [] }),
        description: text().optional(),
      },
      { error: 'a map' },
    ),
  },
  { error: 'a map' },
)

type SiteDocument = z.infer<typeof siteSchema>

/** Reads and validates a site file. Throws InvalidFileError with all problems and their lines. */
export async function readSiteFile(path: string): Promise<SiteConfig> {
  return parseSiteFile(path, await readSiteText(path))
}

/** Like readSiteFile(), for text; `path` is used in messages and to resolve relative paths. */
export function parseSiteFile(path: string, content: string): SiteConfig {
  const parsed = parseSiteDocument(path, content)
  if (parsed.problems.length > 0 || parsed.config === undefined) throw new InvalidFileError(parsed.problems)
  return parsed.config
}

export interface ParsedSite {
  /** Undefined if a field has a value that cannot be read. */
  readonly config: SiteConfig | undefined
  /** Gives the position of a field, or of the nearest existing field around it. */
  readonly place: SourceDocument['place']
  /** The folders of objects and of state that the file names, if the text can be read that far. Absolute. */
  readonly objects: string
  readonly state: string
  /**
   * Set if all problems are in the rows of single gateways. Such a row keeps what is wrong, so that its Node states it
   * and cannot be a gateway (gatewayProblem()), as in a cluster.
   */
  readonly onlyRows?: SiteConfig
  readonly problems: readonly FileProblem[]
}

/** Parses a site file and gives all of its problems. Pure. */
export function parseSiteDocument(path: string, content: string): ParsedSite {
  const atStart = (): { line: number; column: number } => ({ line: 1, column: 1 })
  const nothing = { config: undefined, place: atStart, ...statedFolders(path, undefined) }
  const source = readSource(path, content)
  if ('problems' in source) return { ...nothing, problems: source.problems }
  const documents = source.documents.filter(({ value }) => value !== undefined)
  const [document] = documents
  if (document === undefined || documents.length > 1) {
    const reason = `expected one document of kind Site, got ${documents.length}`
    return { ...nothing, problems: [{ file: path, ...atStart(), reason }] }
  }
  const place = (at: FieldPath): { line: number; column: number } => document.place(at)
  const stated = { place, ...statedFolders(path, document.value) }
  const checked = siteSchema.safeParse(document.value)
  if (!checked.success) {
    const problems = schemaProblems(path, document, checked.error)
    const onlyRows = onlyBadRows(path, document.value, checked.error.issues)
    return { ...stated, config: undefined, ...(onlyRows === undefined ? {} : { onlyRows }), problems }
  }
  const complaints = [...crossChecks(checked.data)]
  const problems = complaints.map(({ at, reason }) => problemAt(path, document, at, reason))
  const config = toConfig(path, checked.data)
  return { ...stated, config, ...(complaints.every(({ at }) => isInRow(at)) ? { onlyRows: config } : {}), problems }
}

const DEFAULT_OBJECTS = './objects'
const DEFAULT_STATE = './state'

/** Reads only these fields, because another one may be wrong. */
function statedFolders(path: string, document: unknown): Pick<ParsedSite, 'objects' | 'state'> {
  const { spec } = (document ?? {}) as { readonly spec?: { readonly objects?: unknown; readonly state?: unknown } }
  const folder = (stated: unknown, other: string): string =>
    resolve(dirname(resolve(path)), typeof stated === 'string' && stated !== '' ? stated : other)
  return { objects: folder(spec?.objects, DEFAULT_OBJECTS), state: folder(spec?.state, DEFAULT_STATE) }
}

/** Whether the field belongs to the row of one gateway. A row without a usable name of a node belongs to any. */
function isInRow(at: FieldPath): boolean {
  return at[0] === 'spec' && at[1] === 'gateways' && typeof at[2] === 'number' && at[3] !== 'node'
}

/** Undefined if there are other problems than in rows of gateways. */
function onlyBadRows(path: string, value: unknown, issues: readonly z.core.$ZodIssue[]): SiteConfig | undefined {
  if (!issues.every((issue) => isInRow(issue.path as FieldPath))) return undefined
  const { spec, ...rest } = value as { readonly spec: { readonly gateways: readonly unknown[] } }
  const bad = new Set(issues.map((issue) => Number(issue.path[2])))
  const rows = spec.gateways.map((row, i) => (bad.has(i) ? { node: (row as Partial<SiteGateway> | null)?.node } : row))
  const checked = siteSchema.safeParse({ ...rest, spec: { ...spec, gateways: rows } })
  if (!checked.success || ![...crossChecks(checked.data)].every(({ at }) => isInRow(at))) return undefined
  const config = toConfig(path, checked.data)
  const gateways = config.gateways.map((row, i) => (bad.has(i) ? asWritten(row.node, spec.gateways[i]) : row))
  return { ...config, gateways }
}

/** The row with what is wrong with it. */
function asWritten(node: string, row: unknown): SiteGateway {
  const { node: _node, lane, publicAddress, publicPort, ...rest } = row as Record<string, unknown>
  const { listenPort, relay, portMapping, ...others } = rest
  const number = (value: unknown): number | undefined =>
    value === undefined || typeof value === 'number' ? value : Number.NaN
  const isOfferBad = (relay !== undefined && relay !== true) || (portMapping !== undefined && portMapping !== false)
  const whole = Object.keys(others).length > 0 || isOfferBad ? row : publicAddress
  const address = whole === undefined || typeof whole === 'string' ? whole : `${typeof whole} ${JSON.stringify(whole)}`
  const offer = relay === true ? (true as const) : undefined
  const ports = { publicPort: number(publicPort), listenPort: number(listenPort) }
  const off = portMapping === false ? (false as const) : undefined
  const calls = { publicAddress: address, ...ports, relay: offer, portMapping: off }
  const stated = number(lane)
  return { node, ...(stated === undefined ? {} : { lane: stated }), ...calledAt(calls) }
}

interface Complaint {
  readonly at: FieldPath
  readonly reason: string
}

/** Checks that involve several fields. */
function* crossChecks({ spec }: SiteDocument): Generator<Complaint> {
  if (spec.kubernetes !== undefined) {
    const stated = {
      objects: spec.objects !== undefined,
      gateways: spec.gateways.length > 0,
      hub: spec.hub.listen.length > 0,
    }
    const elsewhere = {
      objects: 'its objects are in the API server',
      gateways: 'label Nodes with sealane.io/gateway',
      hub: 'its nodes speak with the API server',
    }
    for (const [name, where] of Object.entries(elsewhere)) {
      if (stated[name as keyof typeof stated])
        yield { at: ['spec', name], reason: `spec.${name}: not with spec.kubernetes: ${where}` }
    }
  }
  const isOpen = spec.kubernetes !== undefined || spec.gateways.some(({ lane }) => lane === undefined)
  if (!isOpen && spec.activeGateways !== undefined) {
    const reason = 'spec.activeGateways: only where a gateway of spec.gateways has no lane of its own'
    yield { at: ['spec', 'activeGateways'], reason }
  }
  if (spec.podCIDRs.length === 0)
    yield { at: ['spec', 'podCIDRs'], reason: 'spec.podCIDRs: expected at least one CIDR' }
  const ranges = [
    ...spec.podCIDRs.map((range, i) => ({ range, name: 'podCIDRs', i })),
    ...spec.serviceCIDRs.map((range, i) => ({ range, name: 'serviceCIDRs', i })),
  ]
  for (const [n, a] of ranges.entries()) {
    const b = ranges.slice(0, n).find((other) => overlaps(parsePrefix(other.range), parsePrefix(a.range)))
    if (b === undefined) continue
    yield {
      at: ['spec', a.name, a.i],
      reason: `spec.${a.name}[${a.i}]: ${a.range} overlaps spec.${b.name}[${b.i}], ${b.range}`,
    }
  }
  for (const name of ['lane', 'node'] as const) yield* repeatedGateways(spec, name)
  yield* badOverlayPort(spec)
  yield* badPorts(spec)
}

/** Checks the overlay's port. badPorts() compares it with those of gateways. */
function* badOverlayPort({ kubernetes, overlay, dns }: SiteDocument['spec']): Generator<Complaint> {
  const port = overlay?.port
  const at = ['spec', 'overlay', 'port']
  const problem = port === undefined ? undefined : overlayPortProblem(port)
  if (problem !== undefined) yield { at, reason: `spec.overlay.port: ${problem}, got ${port}` }
  // In a cluster, dns listens in the network of its pod.
  if (kubernetes !== undefined) return
  const i = dns.listen.findIndex((text) => parseAddressPort(text).port === (port ?? VXLAN_PORT))
  const taken = dns.listen[i]
  if (taken === undefined) return
  yield port === undefined
    ? {
        at: ['spec', 'dns', 'listen', i],
        reason: `spec.dns.listen[${i}]: expected another port, ${taken} has that of the overlay`,
      }
    : { at, reason: `spec.overlay.port: spec.dns.listen has ${taken}: expected another port` }
}

/** Checks the ports of each gateway, and that gateways behind one public address have different ones. */
function* badPorts({ gateways, overlay }: SiteDocument['spec']): Generator<Complaint> {
  for (const [i, gateway] of gateways.entries()) {
    const { listenPort } = gateway
    const problem = listenPort === undefined ? undefined : firstPortProblem(listenPort, 'listen', overlay?.port)
    if (problem !== undefined) {
      const reason = `spec.gateways[${i}].listenPort: ${problem}`
      yield { at: ['spec', 'gateways', i, 'listenPort'], reason }
    }
    const relays = gateway.relay === true && problem === undefined ? relayProblem(gateway, overlay?.port) : undefined
    if (relays !== undefined)
      yield { at: ['spec', 'gateways', i, 'relay'], reason: `spec.gateways[${i}].relay: ${relays}` }
    // Without ports, the gateways may be on standby for one another behind an address that moves with them.
    const first = gateways.slice(0, i).findIndex((other) => {
      return isCalledAlike(other, gateway) && [other, gateway].some(({ publicPort }) => publicPort !== undefined)
    })
    if (first < 0) continue
    const field = gateway.publicPort === undefined ? 'publicAddress' : 'publicPort'
    const reason = `spec.gateways[${i}].${field}: spec.gateways[${first}] has the same public address: expected a publicPort with ${MAX_LANE + 1} ports of its own, not ${portRange(firstPublicPort(calledAt(gateway)))}`
    yield { at: ['spec', 'gateways', i, field], reason }
  }
}

/** Checks that each node has at most one lane, and that each lane number is used at most once. */
function* repeatedGateways({ gateways }: SiteDocument['spec'], name: 'lane' | 'node'): Generator<Complaint> {
  for (const [i, { [name]: value }] of gateways.entries()) {
    const first = gateways.findIndex((other) => other[name] === value)
    if (value === undefined || first === i) continue
    const reason = `spec.gateways[${i}].${name}: expected a ${name} of its own, spec.gateways[${first}] has ${name} ${value} already`
    yield { at: ['spec', 'gateways', i, name], reason }
  }
}

function toConfig(path: string, { metadata, spec }: SiteDocument): SiteConfig {
  const file = resolve(path)
  const folder = dirname(file)
  const state = resolve(folder, spec.state ?? (spec.kubernetes === undefined ? DEFAULT_STATE : NODE_STATE))
  return {
    file,
    folder,
    name: metadata.name,
    objects: resolve(folder, spec.objects ?? DEFAULT_OBJECTS),
    state,
    identity: resolve(state, 'identity'),
    podCIDRs: spec.podCIDRs,
    serviceCIDRs: spec.serviceCIDRs,
    labels: spec.labels,
    allowedNamespaces: spec.allowedNamespaces,
    excludedNamespaces: spec.excludedNamespaces,
    ...(spec.exposure === undefined ? {} : { exposure: spec.exposure }),
    ...(spec.failClosed === undefined ? {} : { failClosed: spec.failClosed }),
    ...(spec.kubernetes === undefined ? {} : { kubernetes: kubernetesAccess(folder, spec.kubernetes) }),
    gateways: spec.gateways.map(({ node, lane, ...calls }) => ({
      node,
      ...(lane === undefined ? {} : { lane }),
      ...calledAt(calls),
    })),
    activeGateways: spec.activeGateways ?? DEFAULT_ACTIVE_GATEWAYS,
    ...(spec.keyRotationDays === undefined ? {} : { keyRotationDays: spec.keyRotationDays }),
    ...(spec.linkSleepMinutes === undefined ? {} : { linkSleepMinutes: spec.linkSleepMinutes }),
    openHostPorts: spec.openHostPorts.flatMap((text) => parseOpenPort(text) ?? []),
    hub: { listen: spec.hub.listen },
    overlay: { port: spec.overlay?.port ?? VXLAN_PORT, checksumOffload: spec.overlay?.checksumOffload ?? 'auto' },
    dns: { listen: spec.dns.listen, upstreams: spec.dns.upstreams.map(withPort), forwardFor: spec.dns.forwardFor },
  }
}

function kubernetesAccess(
  folder: string,
  { kubeconfig, context, namespace }: NonNullable<SiteDocument['spec']['kubernetes']>,
): KubernetesAccess {
  return {
    namespace,
    ...(kubeconfig === undefined ? {} : { kubeconfig: resolve(folder, kubeconfig) }),
    ...(context === undefined ? {} : { context }),
  }
}

function isAddressPort(text: string, defaultPort?: number): boolean {
  try {
    parseAddressPort(text, '', defaultPort === undefined ? {} : { defaultPort })
    return true
  } catch {
    return false
  }
}

function withPort(value: string): string {
  return formatAddressPort(parseAddressPort(value, 'upstream', { defaultPort: DNS_PORT }))
}

function problemAt(file: string, document: SourceDocument, at: FieldPath, reason: string): FileProblem {
  return { file, ...document.place(at), reason }
}

/** Limit in bytes of a site file. The largest useful one has a few kilobytes. */
const MAX_SITE_BYTES = 1024 * 1024

/** Throws InvalidFileError if the file cannot be read, is larger than 1 MiB, or is no regular file. */
export async function readSiteText(path: string): Promise<string> {
  try {
    const kind = await stat(path)
    if (!kind.isFile()) throw new UnusableFileError('expected a regular file')
    if (kind.size > MAX_SITE_BYTES) {
      throw new UnusableFileError(`${kind.size} bytes: expected at most ${MAX_SITE_BYTES}`)
    }
    return (await readFile(path, 'utf8')).replace(/^\uFEFF/, '')
  } catch (error) {
    const reason = isMissing(error) ? 'no such file' : messageOf(error)
    throw new InvalidFileError([{ file: path, line: 1, column: 1, reason }])
  }
}

class UnusableFileError extends Error {}
