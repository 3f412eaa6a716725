/**
 * Checks a site file together with its folder of objects, before a token is used or a part starts. All commands that
 * examine a site call this, so that they say the same. Pure.
 */
import {
  type AddressPort,
  isListenPlace,
  isUnspecified,
  parseAddressPort,
  sameAddressPort,
  sharesListenPort,
} from '../../model/addresses/addresses.ts'
import {
  CLUSTERSET_IPV6_PREFIX,
  DEFAULT_CLUSTERSET_IP_RANGE,
  DEFAULT_GLOBAL_RANGE,
  LANE_ADDRESS_RANGE,
  type Node,
} from '../../model/model.ts'
import { takenPortProblem } from '../../model/lanes/lanes.ts'
import { type FieldPath, type TypeMeta, misspeltType } from '../../model/schemas/schemas.ts'
import {
  containsAddress,
  containsPrefix,
  isAddress,
  nearName,
  overlaps,
  parseAddress,
  parsePrefix,
} from '../../model/values/values.ts'
import { objectTitle } from '../driver/driver.ts'
import type { FileProblem } from './problem-board.ts'
import { type ParsedSite, type SiteConfig, parseSiteDocument } from './site-file.ts'
import { type ParsedObject, type PlaceOf, parseObjects } from './user/parse-objects.ts'

/** The content of a file, or why it could not be read. */
export type FileText =
  { readonly file: string; readonly text: string } | { readonly file: string; readonly unreadable: string }

/** The files of a site. */
export interface SiteTexts {
  readonly site: FileText
  /** In order of their paths. A text if the folder cannot be read, such as `no such folder`. */
  readonly objects: readonly FileText[] | string
}

/** A range that no address of a site may have. */
export interface ReservedRange {
  readonly cidr: string
  /** What has the range, such as `the lanes`. */
  readonly of: string
}

/** Ranges that no option of a broker changes. */
const FIXED_RANGES: readonly ReservedRange[] = [
  { cidr: LANE_ADDRESS_RANGE, of: 'the lanes' },
  { cidr: CLUSTERSET_IPV6_PREFIX, of: 'clusterset IPs' },
]

/** The ranges of a clusterset whose broker has the default ones. */
export const DEFAULT_CLUSTERSET_RANGES: readonly ReservedRange[] = [
  { cidr: DEFAULT_GLOBAL_RANGE, of: 'global addresses' },
  { cidr: DEFAULT_CLUSTERSET_IP_RANGE, of: 'clusterset IPs' },
]

/** Ranges of addresses at which no other node reaches a node (RFC 6890, RFC 5771, RFC 4291). */
const UNREACHABLE_RANGES: readonly ReservedRange[] = [
  { cidr: '0.0.0.0/8', of: 'hosts that have no address yet' },
  { cidr: '127.0.0.0/8', of: 'loopback addresses' },
  { cidr: '169.254.0.0/16', of: 'link-local addresses' },
  { cidr: '224.0.0.0/4', of: 'multicast groups' },
  { cidr: '255.255.255.255/32', of: 'broadcasts' },
  { cidr: '::/128', of: 'hosts that have no address yet' },
  { cidr: '::1/128', of: 'loopback addresses' },
  { cidr: 'fe80::/10', of: 'link-local addresses' },
  { cidr: 'ff00::/8', of: 'multicast groups' },
]

const MULTICAST_RANGES = ['224.0.0.0/4', 'ff00::/8']

export interface SiteCheck {
  /** Undefined if a field of the site file cannot be read. */
  readonly config: SiteConfig | undefined
  /** The names of the Nodes in the folder of objects. */
  readonly nodes: readonly string[]
  /** By file, line and column; those of the site file come first. Empty if the site can be joined and started. */
  readonly problems: readonly FileProblem[]
}

/**
 * Gives all problems of a site's files. `ranges` are those of the clusterset; none if the caller asks the broker, which
 * checks them itself. A site in a Kubernetes cluster has no folder of objects, so only its site file is checked.
 */
export function planSiteCheck({ site, objects }: SiteTexts, ranges: readonly ReservedRange[] = []): SiteCheck {
  if ('unreadable' in site) return { config: undefined, nodes: [], problems: [atStart(site.file, site.unreadable)] }
  const parsed = parseSiteDocument(site.file, site.text)
  const { config, problems } = parsed
  if (config?.kubernetes !== undefined) return { config, nodes: [], problems }
  const reserved = [...FIXED_RANGES, ...ranges]
  const folder = typeof objects === 'string' ? undefined : readFolder(objects)
  const all = [
    ...problems,
    ...ownChecks(site.file, parsed, reserved),
    ...(typeof objects === 'string' ? missingFolder(site.file, parsed, objects) : []),
    ...(folder === undefined ? [] : gatewayRows(site.file, parsed, folder)),
    ...(folder === undefined ? [] : [...folder.problems, ...nodeChecks(config, folder, reserved)]),
  ]
  const nodes = (folder?.nodes ?? []).map(({ node }) => node.metadata.name)
  return { config, nodes, problems: sorted(all, [site.file, ...(folder?.files ?? [])]) }
}

interface Placed extends ParsedObject {
  readonly file: string
  readonly place: PlaceOf
}

interface PlacedNode extends Placed {
  readonly node: Node
}

interface Folder {
  readonly files: readonly string[]
  readonly nodes: readonly PlacedNode[]
  /** Files that have objects which cannot be read, so that `nodes` may lack some. */
  readonly broken: readonly FileText[]
  readonly problems: readonly FileProblem[]
}

function readFolder(texts: readonly FileText[]): Folder {
  const [found, problems, broken]: [Placed[], FileProblem[], FileText[]] = [[], [], []]
  for (const one of texts) {
    const { file } = one
    if ('unreadable' in one) {
      problems.push(atStart(file, one.unreadable))
      broken.push(one)
      continue
    }
    const result = parseObjects(file, one.text, {
      onTaken: (object, place) => void found.push({ ...object, file, place }),
      onIgnored: (type, place) => problems.push(...misspelt(file, type, place)),
    })
    if (!('problems' in result)) continue
    problems.push(...result.problems)
    broken.push(one)
  }
  const firsts = new Map<string, Placed>()
  for (const one of found) {
    const id = `${one.kind} ${one.key}`
    const first = firsts.get(id)
    if (first === undefined) firsts.set(id, one)
    else problems.push({ file: one.file, ...one.place([]), reason: twice(one, first) })
  }
  const nodes = [...firsts.values()].flatMap((one): readonly PlacedNode[] =>
    one.kind === 'Node' ? [{ ...one, node: one.object as Node }] : [],
  )
  return { files: texts.map(({ file }) => file), nodes, broken, problems }
}

function misspelt(file: string, type: TypeMeta, place: PlaceOf): readonly FileProblem[] {
  const wrong = misspeltType(type)
  if (wrong === undefined) return []
  const { field, expected } = wrong
  return [{ file, ...place([field]), reason: `${field}: expected ${expected}, got ${quoted(type[field])}` }]
}

function twice({ kind, object: { metadata } }: Placed, { file, line }: Placed): string {
  return `${objectTitle(kind, metadata.name, metadata.namespace)} is also in ${file}:${line}; remove one of the two`
}

/** What the site file must have so that this site reaches others, besides what its grammar says. */
function* ownChecks(
  file: string,
  { config, place }: ParsedSite,
  reserved: readonly ReservedRange[],
): Generator<FileProblem> {
  if (config === undefined) return
  const { gateways, dns, podCIDRs, serviceCIDRs } = config
  const at = (path: FieldPath, reason: string): FileProblem => ({ file, ...place(path), reason })
  if (gateways.length === 0) {
    const reason = 'spec.gateways: expected at least one gateway such as { node: gw1 }, got none'
    yield at(['spec', 'gateways'], reason)
  }
  if (dns.listen.length === 0) {
    const reason = 'spec.dns.listen: expected at least one address:port such as 10.42.0.1:53, got none'
    yield at(['spec', 'dns', 'listen'], reason)
  }
  if (dns.forwardFor.length > 0 && dns.upstreams.length === 0) {
    const reason =
      'spec.dns.upstreams: expected at least one address such as 192.0.2.53, because of spec.dns.forwardFor'
    yield at(['spec', 'dns', 'upstreams'], reason)
  }
  for (const { path, reason } of listenComplaints(config)) yield at(path, `${fieldText(path)}: ${reason}`)
  for (const [i, upstream] of dns.upstreams.entries()) {
    const to = parseAddressPort(upstream)
    const own = dns.listen.find((text) => isListenPlace(parseAddressPort(text), to))
    if (own === undefined) continue
    const reason = `spec.dns.upstreams[${i}]: expected another DNS server, ${upstream} is in spec.dns.listen`
    yield at(['spec', 'dns', 'upstreams', i], own === upstream ? reason : `${reason} as ${own}`)
  }
  for (const [name, cidrs] of Object.entries({ podCIDRs, serviceCIDRs })) {
    for (const [i, cidr] of cidrs.entries()) {
      const reason = reservedBy(cidr, reserved)
      if (reason !== undefined) yield at(['spec', name, i], `spec.${name}[${i}]: ${reason}`)
    }
  }
}

interface Listener {
  readonly path: readonly ['spec', 'dns' | 'hub', 'listen', number]
  readonly text: string
  readonly at: AddressPort
}

/**
 * Each server of the site listens at a place of its own. A hub takes TCP alone, and dns TCP and UDP: so dns alone may
 * have a port of a gateway, since WireGuard listens at all addresses.
 */
function* listenComplaints(config: SiteConfig): Generator<Pick<Listener, 'path'> & { readonly reason: string }> {
  const listeners = (['dns', 'hub'] as const).flatMap((name) =>
    config[name].listen.map((text, i): Listener => ({
      path: ['spec', name, 'listen', i],
      text,
      at: parseAddressPort(text),
    })),
  )
  for (const [n, { path, text, at }] of listeners.entries()) {
    const first = listeners.slice(0, n).find((other) => sharesListenPort(other.at, at))
    if (first !== undefined) yield { path, reason: takenText(first, { path, text, at }) }
    const taken = path[1] === 'dns' ? takenPortProblem(at.port, config.gateways) : undefined
    if (taken !== undefined) yield { path, reason: `expected another port than that of ${text}: ${taken}` }
    if (MULTICAST_RANGES.some((cidr) => containsAddress(parsePrefix(cidr), at.address))) {
      yield { path, reason: `expected an address of a node, ${text} is a multicast group` }
    }
  }
}

function takenText(first: Listener, { text, at }: Listener): string {
  const [field, own] = [fieldText(first.path), 'expected an address:port of its own']
  if (sameAddressPort(first.at, at)) return `${own}, ${field} has ${text} already`
  return isUnspecified(at)
    ? `${own}, ${text} is on all addresses, also that of ${field}, ${first.text}`
    : `${own}, ${field} has ${first.text}, which is on all addresses`
}

function fieldText([spec, name, list, i]: Listener['path']): string {
  return `${spec}.${name}.${list}[${i}]`
}

function reservedBy(cidr: string, reserved: readonly ReservedRange[]): string | undefined {
  const found = reserved.find((one) => overlaps(parsePrefix(one.cidr), parsePrefix(cidr)))
  return found === undefined ? undefined : `${cidr} overlaps ${found.cidr} of ${found.of}`
}

function missingFolder(file: string, { place, objects }: ParsedSite, why: string): readonly FileProblem[] {
  return [{ file, ...place(['spec', 'objects']), reason: `spec.objects: ${objects}: ${why}` }]
}

/** Each gateway row is one Node with an IPv4 address at which the other nodes of the site reach it. */
function* gatewayRows(file: string, { config, place }: ParsedSite, { nodes, broken }: Folder): Generator<FileProblem> {
  const names = nodes.map(({ node }) => node.metadata.name)
  for (const [i, row] of (config?.gateways ?? []).entries()) {
    const found = nodes.find(({ node }) => node.metadata.name === row.node)
    if (found === undefined) {
      // The problem of that file is the cause.
      if (broken.some((one) => 'unreadable' in one || one.text.includes(row.node))) continue
      const meant = nearName(row.node, names)
      const hint = meant === undefined ? '' : `; did you mean ${meant}?`
      const reason = `spec.gateways[${i}].node: no file of ${config?.objects ?? ''} has Node ${row.node}${hint}`
      yield { file, ...place(['spec', 'gateways', i, 'node']), reason }
    } else if (!hasFamily(found.node, 4) && hasFamily(found.node, 6)) {
      const reason = `status.addresses: Node ${row.node} is a gateway: expected an IPv4 InternalIP, got IPv6 only`
      yield { file: found.file, ...found.place(['status', 'addresses']), reason }
    }
  }
}

function hasFamily(node: Node, family: 4 | 6): boolean {
  return internalIPs(node).some(({ address }) => isAddress(address) && parseAddress(address).family === family)
}

interface InternalIP {
  readonly address: string
  readonly at: FieldPath
}

function internalIPs({ status }: Node): readonly InternalIP[] {
  return (status?.addresses ?? []).flatMap(({ type, address }, i) =>
    type === 'InternalIP' ? [{ address, at: ['status', 'addresses', i, 'address'] }] : [],
  )
}

interface NodeRange {
  readonly cidr: string
  readonly at: FieldPath
  /** The field as text, such as `spec.podCIDRs[0]`. */
  readonly field: string
}

function podRanges({ spec }: Node): readonly NodeRange[] {
  const { podCIDR, podCIDRs = [] } = spec ?? {}
  const listed = podCIDRs.map((cidr, i) => ({ cidr, at: ['spec', 'podCIDRs', i], field: `spec.podCIDRs[${i}]` }))
  // Kubernetes repeats the first of podCIDRs in podCIDR.
  if (podCIDR === undefined || podCIDRs.includes(podCIDR)) return listed
  return [{ cidr: podCIDR, at: ['spec', 'podCIDR'], field: 'spec.podCIDR' }, ...listed]
}

function* nodeChecks(
  config: SiteConfig | undefined,
  { nodes }: Folder,
  reserved: readonly ReservedRange[],
): Generator<FileProblem> {
  const addresses = new Map<string, string>()
  const ranges: { readonly name: string; readonly range: NodeRange }[] = []
  for (const { node, file, place } of nodes) {
    const { name } = node.metadata
    const at = (path: FieldPath, reason: string): FileProblem => ({ file, ...place(path), reason })
    const own = internalIPs(node)
    if (own.length === 0) {
      yield at(['status', 'addresses'], `status.addresses: Node ${name}: expected an InternalIP, got none`)
    }
    for (const { address, at: path } of own) {
      const other = addresses.get(address)
      if (other !== undefined) {
        yield at(path, `status.addresses: expected an InternalIP of its own, Node ${other} has ${address} already`)
      }
      addresses.set(address, name)
      const nowhere = UNREACHABLE_RANGES.find(({ cidr }) => isInside(address, cidr))
      if (nowhere !== undefined) {
        const reason = `${address} is in ${nowhere.cidr} of ${nowhere.of}`
        yield at(path, `status.addresses: expected an address at which other nodes reach Node ${name}, ${reason}`)
      }
      const taken = reserved.find(({ cidr }) => isInside(address, cidr))
      if (taken !== undefined) yield at(path, `status.addresses: ${address} is in ${taken.cidr} of ${taken.of}`)
    }
    for (const range of podRanges(node)) {
      const problem = rangeProblem(range, config, ranges)
      if (problem !== undefined) yield at(range.at, `${range.field}: ${problem}`)
      ranges.push({ name, range })
    }
  }
}

function rangeProblem(
  { cidr }: NodeRange,
  config: SiteConfig | undefined,
  before: readonly { readonly name: string; readonly range: NodeRange }[],
): string | undefined {
  const prefix = parsePrefix(cidr)
  const other = before.find(({ range }) => overlaps(parsePrefix(range.cidr), prefix))
  if (other !== undefined) {
    return `expected a range of its own, ${cidr} overlaps ${other.range.cidr} of Node ${other.name}`
  }
  if (config === undefined || config.podCIDRs.some((one) => containsPrefix(parsePrefix(one), prefix))) return undefined
  return `expected a part of spec.podCIDRs of ${config.file} (${config.podCIDRs.join(', ')}), got ${cidr}`
}

function isInside(address: string, cidr: string): boolean {
  return isAddress(address) && containsAddress(parsePrefix(cidr), parseAddress(address))
}

function atStart(file: string, reason: string): FileProblem {
  return { file, line: 1, column: 1, reason }
}

function quoted(text: string): string {
  return JSON.stringify(text.slice(0, 100))
}

function sorted(problems: readonly FileProblem[], files: readonly string[]): readonly FileProblem[] {
  const order = new Map(files.map((file, i) => [file, i]))
  return [...problems].sort(
    (a, b) => (order.get(a.file) ?? 0) - (order.get(b.file) ?? 0) || a.line - b.line || a.column - b.column,
  )
}
