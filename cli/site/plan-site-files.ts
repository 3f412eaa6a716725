/** What `sealane site init` suggests and writes. Pure. */
import {
  InvalidAddressError,
  type Prefix,
  addressBits,
  containsAddress,
  formatAddress,
  formatPrefix,
  isAddress,
  isDnsLabel,
  isDnsSubdomain,
  parseAddress,
  parsePrefix,
  prefixOf,
} from '../../model/values/values.ts'
import { PUBLIC_ADDRESS_EXPECTED, publicAddressProblem } from '../../model/lanes/lanes.ts'
import { InvalidNameError, parseDnsLabel } from '../../model/model.ts'
import { formatAddressPort, parseAddressPort } from '../../model/addresses/addresses.ts'

/** What is known about the machine on which the command runs. */
export interface SiteMachine {
  readonly hostname: string
  /** IPv4 addresses of interfaces that are up. Those of the loopback are left out. */
  readonly addresses: readonly { readonly device: string; readonly address: string }[]
  /** The text of /proc/net/route (proc(5)). */
  readonly routes: string
}

/** The questions, in this order, each with its flag. */
export const QUESTIONS = ['name', 'node', 'pod-cidr', 'dns', 'public-address'] as const
export type Question = (typeof QUESTIONS)[number]

/** The words of each answer, as typed. */
export type Answers = Readonly<Partial<Record<Question, readonly string[] | undefined>>>
export type AllAnswers = Readonly<Record<Question, readonly string[]>>

export interface SitePlan {
  readonly name: string
  /** The site file and the Nodes as objects. */
  readonly site: object
  readonly nodes: readonly { readonly metadata: { readonly name: string } }[]
}

/** The answer that the machine suggests. Undefined if it suggests none. `before` are the answers so far. */
export function suggestion(question: Question, machine: SiteMachine, before: Answers): string | undefined {
  switch (question) {
    case 'name':
      return machineName(machine)
    case 'node': {
      const address = machineAddress(machine)
      const name = machineName(machine)
      return address === undefined || name === undefined ? undefined : `${name}=${address}`
    }
    case 'pod-cidr': {
      const [bridge] = bridgeRanges(machine)
      return bridge === undefined ? undefined : formatPrefix(bridge.range)
    }
    case 'dns':
      return dnsAddress(machine, before)
    case 'public-address':
      return NONE
  }
}

/** The answer of a site whose gateways are behind NAT, or reachable at their own address. */
const NONE = 'none'

/** The question as a person reads it. */
export function questionText(question: Question): string {
  switch (question) {
    case 'name':
      return 'Name of this site, unique in the clusterset'
    case 'node':
      return 'Machines of this site, as NAME=ADDRESS, the gateway first'
    case 'pod-cidr':
      return 'Range of the containers on the first machine (of others: NAME=CIDR). Without containers: a free range, whose addresses your services get'
    case 'dns':
      return 'Address and port at which clusterset.local is answered'
    case 'public-address':
      return 'Address at which other sites reach the gateway, or none'
  }
}

/**
 * Throws InvalidNameError or InvalidAddressError, which name the flag, for an answer that cannot be used. `before` are
 * the answers to earlier questions.
 */
export function checkAnswer(question: Question, words: readonly string[], before: Answers): void {
  switch (question) {
    case 'name':
      parseDnsLabel(words.join(' '), '--name')
      return
    case 'node':
      readNodes(words)
      return
    case 'pod-cidr':
      readRanges(words, readNodes(before.node ?? []))
      return
    case 'dns':
      if (words.length === 0) throw new InvalidAddressError('--dns', '', 'address:port such as 10.42.0.1:53')
      for (const word of words) parseAddressPort(word, '--dns', { defaultPort: DNS_PORT })
      return
    case 'public-address':
      readPublic(words, readNodes(before.node ?? []))
  }
}

/** `gateways` are names of nodes; the first node if it is empty. Throws as checkAnswer() does. */
export function planSiteFiles(answers: AllAnswers, gateways: readonly string[]): SitePlan {
  for (const question of QUESTIONS) checkAnswer(question, answers[question], answers)
  const nodes = readNodes(answers.node)
  const names = nodes.map(({ name }) => name)
  const ranges = readRanges(answers['pod-cidr'], nodes)
  const rows = gateways.length === 0 ? names.slice(0, 1) : gateways
  for (const row of rows) {
    if (!names.includes(row)) throw new InvalidNameError('--gateway', row, `one of ${names.join(', ')}`)
  }
  const publicAddresses = readPublic(answers['public-address'], nodes)
  for (const name of publicAddresses.keys()) {
    if (!rows.includes(name)) throw new InvalidNameError('--public-address', name, `a gateway, ${rows.join(' or ')}`)
  }
  const name = answers.name.join(' ')
  return {
    name,
    site: {
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'Site',
      metadata: { name },
      spec: {
        objects: './objects',
        state: './state',
        podCIDRs: nodes.flatMap((node) => ranges.get(node.name) ?? []),
        exposure: 'exports',
        gateways: rows.map((node) => {
          const publicAddress = publicAddresses.get(node)
          return { node, ...(publicAddress === undefined ? {} : { publicAddress }) }
        }),
        dns: { listen: answers.dns.map(withPort) },
      },
    },
    nodes: nodes.map((node) => nodeObject(node, ranges.get(node.name) ?? [])),
  }
}

function nodeObject({ name, addresses }: NodeAnswer, podCIDRs: readonly string[]): SitePlan['nodes'][number] {
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name },
    ...(podCIDRs.length === 0 ? {} : { spec: { podCIDRs } }),
    status: { addresses: addresses.map((address) => ({ type: 'InternalIP', address })) },
  } as SitePlan['nodes'][number]
}

interface NodeAnswer {
  readonly name: string
  readonly addresses: readonly string[]
}

/** A node that is named twice has both addresses, as with IPv4 and IPv6. */
function readNodes(words: readonly string[]): readonly NodeAnswer[] {
  const nodes = new Map<string, readonly string[]>()
  for (const word of words) {
    const [name, address] = named(word)
    if (name === undefined || !isDnsSubdomain(name)) {
      throw new InvalidNameError('--node', word, 'NAME=ADDRESS such as gw1=192.168.1.10')
    }
    const text = formatAddress(parseAddress(address, '--node'))
    nodes.set(name, [...(nodes.get(name) ?? []), text])
  }
  if (nodes.size === 0) throw new InvalidNameError('--node', '', 'NAME=ADDRESS such as gw1=192.168.1.10')
  return [...nodes].map(([name, addresses]) => ({ name, addresses }))
}

/** The CIDRs of each node by its name. */
function readRanges(words: readonly string[], nodes: readonly NodeAnswer[]): ReadonlyMap<string, readonly string[]> {
  const ranges = new Map<string, readonly string[]>()
  for (const word of words) {
    const [node, cidr] = ofNode(word, nodes, '--pod-cidr')
    ranges.set(node, [...(ranges.get(node) ?? []), formatPrefix(parsePrefix(cidr, '--pod-cidr'))])
  }
  if (ranges.size === 0) throw new InvalidAddressError('--pod-cidr', '', 'at least one CIDR such as 10.42.0.0/24')
  return ranges
}

/** The public address of each gateway by its node. */
function readPublic(words: readonly string[], nodes: readonly NodeAnswer[]): ReadonlyMap<string, string> {
  const rows = words
    .filter((word) => word !== NONE)
    .map((word) => {
      const [node, address] = ofNode(word, nodes, '--public-address')
      if (publicAddressProblem(address) === undefined) return [node, address] as const
      throw new InvalidAddressError('--public-address', address, PUBLIC_ADDRESS_EXPECTED)
    })
  return new Map(rows)
}

/** `NAME=value`; a value alone belongs to the first node. */
function ofNode(word: string, nodes: readonly NodeAnswer[], flag: string): readonly [node: string, value: string] {
  const names = nodes.map(({ name }) => name)
  const [name = names[0] ?? '', value] = named(word)
  if (!names.includes(name)) throw new InvalidNameError(flag, word, `NAME=… with a node of --node, ${names.join(', ')}`)
  return [name, value]
}

function named(word: string): readonly [name: string | undefined, value: string] {
  const at = word.indexOf('=')
  return at < 0 ? [undefined, word] : [word.slice(0, at), word.slice(at + 1)]
}

const DNS_PORT = 53

function withPort(text: string): string {
  return formatAddressPort(parseAddressPort(text, '--dns', { defaultPort: DNS_PORT }))
}

/** The first label of the name of the machine, if it can be the name of a Node. */
function machineName({ hostname }: SiteMachine): string | undefined {
  const [label = ''] = hostname.toLowerCase().split('.')
  return isDnsLabel(label) && label !== 'localhost' ? label : undefined
}

/** The address of the interface with the default route, else of the first one that is no bridge of containers. */
function machineAddress({ addresses, routes }: SiteMachine): string | undefined {
  const [standard] = routeRows(routes).filter(({ range }) => range.length === 0)
  const found =
    addresses.find(({ device }) => device === standard?.device) ??
    addresses.find(({ device }) => bridgeRank(device) < 0)
  return found?.address
}

/** Bridges of container runtimes, those that are usual first. */
const BRIDGES = [
  /^cni0$/,
  /^cbr0$/,
  /^docker0$/,
  /^(cni-)?podman\d+$/,
  /^nerdctl\d+$/,
  /^(lxc|lxd|incus)br\d+$/,
  /^br-/,
  /^virbr\d+$/,
]

/** -1 for a device that is no bridge of containers. */
function bridgeRank(device: string): number {
  return BRIDGES.findIndex((pattern) => pattern.test(device))
}

interface RouteRow {
  readonly device: string
  readonly range: Prefix
}

/** The networks of bridges. A bridge without containers has no carrier and is no interface that is up, but has a route. */
function bridgeRanges({ routes }: SiteMachine): readonly RouteRow[] {
  return routeRows(routes)
    .filter(({ device, range }) => bridgeRank(device) >= 0 && range.length > 0)
    .sort((a, b) => bridgeRank(a.device) - bridgeRank(b.device))
}

/** `docker0 000011AC 00000000 0001 0 0 0 0000FFFF …`: addresses are little-endian hexadecimal numbers. */
function routeRows(routes: string): readonly RouteRow[] {
  return routes.split('\n').flatMap((line): readonly RouteRow[] => {
    const [device = '', to = '', , , , , , mask = ''] = line.trim().split(/\s+/)
    if (![to, mask].every((hex) => /^[0-9A-F]{8}$/.test(hex))) return []
    const bits = parseAddress(dotted(mask)).value.toString(2)
    return [{ device, range: prefixOf(parseAddress(dotted(to)), bits.replace(/0+$/, '').length) }]
  })
}

function dotted(hex: string): string {
  return [6, 4, 2, 0].map((at) => parseInt(hex.slice(at, at + 2), 16)).join('.')
}

/** The machine's own address in the first range of the first node, else the first address of that range. */
function dnsAddress({ addresses }: SiteMachine, before: Answers): string | undefined {
  const nodes = readNodes(before.node ?? [])
  const [text] = readRanges(before['pod-cidr'] ?? [], nodes).get(nodes[0]?.name ?? '') ?? []
  if (text === undefined) return undefined
  const range = parsePrefix(text)
  const own = addresses.find(({ address }) => isAddress(address) && containsAddress(range, parseAddress(address)))
  const isSingle = range.length === addressBits(range.family)
  const first = formatAddress({ family: range.family, value: range.value + (isSingle ? 0n : 1n) })
  return formatAddressPort(parseAddressPort(own?.address ?? first, '--dns', { defaultPort: DNS_PORT }))
}
