/**
 * Traces an imaginary packet through the tables of the fake: which rules match, what is rewritten, and the verdict. It
 * knows the expressions that Sealane writes, and throws on any other expression that it has to evaluate, so that no
 * test passes by chance. Addresses of packets are in canonical form. If a match fails, the rest of the rule is not
 * evaluated.
 */
import { familyOf, formatAddress, parseAddress } from '../../model/addresses/addresses.ts'
import type { FakeNft } from './fake-nft.ts'
import { type FakeNftChain, type FakeNftTable, intervalContains } from './fake-nft-table.ts'
import { RuleText, isIcmpType, rejectAnswer } from './fake-nft-rule.ts'
import type { NftBaseChain } from '../nft/nft.ts'

export interface TracePacket {
  readonly iif?: string
  readonly oif?: string
  /** MAC address of the sender on this link. Absent if the device has none. */
  readonly etherSaddr?: string
  readonly saddr: string
  readonly daddr: string
  readonly l4proto: 'tcp' | 'udp' | 'sctp' | 'gre' | 'icmp' | 'icmpv6'
  readonly sport?: number
  readonly dport?: number
  /** Only for tcp: the first packet of a connection. */
  readonly syn?: boolean
  /** Only for tcp: a reset. */
  readonly rst?: boolean
  /** Only for icmp and icmpv6. */
  readonly icmpType?: number
  /** `new`, or a later packet of a known connection, or of none, which nat chains do not see. Default new. */
  readonly ctState?: 'new' | 'established' | 'related' | 'invalid'
  /** The original destination address of a translated connection. */
  readonly originalDaddr?: string
  /** The original destination port of a translated connection. */
  readonly originalDport?: number
  /** The initiator of the connection that an ICMP error is about. Default: the sender of the packet. */
  readonly originalSaddr?: string
  /** Who answers on the connection that an ICMP error is about. Default: the receiver of the packet. */
  readonly replySaddr?: string
  /** Whether the initiator of the connection sent the packet. Default original. */
  readonly ctDirection?: 'original' | 'reply'
  readonly notrack?: boolean
  /** The destination is an address of this machine. Default false. */
  readonly local?: boolean
  /** A part of a packet without its first part, so without ports. Default false. */
  readonly fragment?: boolean
  readonly mark?: number
}

export interface TraceResult {
  readonly packet: TracePacket
  readonly verdict: 'accept' | 'drop' | 'reject'
  /** The answer of a reject: `tcp reset`, or the name of the ICMP error. */
  readonly answer?: string
  /** `table chain: rule` of each rule whose matches all succeeded. */
  readonly path: readonly string[]
}

export interface TraceOptions {
  /** Replaces numgen and jhash: takes the modulus and returns 0 to modulus - 1. Default: always 0. */
  readonly draw?: (modulus: number) => number
  /** Whether all limits are exceeded. Default false. */
  readonly isOverLimits?: boolean
}

/**
 * Traces through all base chains of the hook in all tables, by priority. A packet of another family passes none of
 * them.
 */
export function traceNft(
  nft: FakeNft,
  hook: NftBaseChain['hook'],
  packet: TracePacket,
  options: TraceOptions = {},
): TraceResult {
  if (nft.family !== (familyOf(packet.daddr) === 6 ? 'ip6' : 'ip')) return { packet, verdict: 'accept', path: [] }
  const { draw = () => 0, isOverLimits = false } = options
  const walk: Walk = { packet, path: [], draw, isOverLimits }
  for (const { table, chain } of baseChains(nft, hook)) {
    const skipped =
      chain.base?.type === 'nat' && ((walk.packet.ctState ?? 'new') !== 'new' || walk.packet.notrack === true)
    if (skipped) continue
    const end = walkChain(table, chain, walk)
    if (end !== 'drop' && end !== 'reject') continue
    const { packet, path, answer } = walk
    return { packet, verdict: end, path, ...(answer === undefined ? {} : { answer }) }
  }
  return { packet: walk.packet, verdict: 'accept', path: walk.path }
}

interface Walk {
  packet: TracePacket
  answer?: string | undefined
  readonly path: string[]
  readonly draw: (modulus: number) => number
  readonly isOverLimits: boolean
}

type End = 'accept' | 'drop' | 'reject' | 'return' | 'continue'

function baseChains(nft: FakeNft, hook: NftBaseChain['hook']): { table: FakeNftTable; chain: FakeNftChain }[] {
  const tables = nft
    .tableNames()
    .map((name) => nft.table(name))
    .filter((table) => table !== undefined)
  return tables
    .flatMap((table) =>
      [...table.chains.values()].filter((chain) => chain.base?.hook === hook).map((chain) => ({ table, chain })),
    )
    .sort((a, b) => (a.chain.base?.priority ?? 0) - (b.chain.base?.priority ?? 0))
}

function walkChain(table: FakeNftTable, chain: FakeNftChain, walk: Walk): End {
  for (const { rule } of chain.rules) {
    const end = walkRule(table, chain, rule, walk)
    if (end !== 'continue') return end
  }
  return 'return'
}

function walkRule(table: FakeNftTable, chain: FakeNftChain, rule: string, walk: Walk): End {
  const text = new RuleText(rule)
  const before = walk.path.length
  walk.path.push(`${table.name} ${chain.name}: ${rule}`)
  while (!text.done) {
    const end = step(table, text, walk)
    if (end === 'no match') {
      walk.path.length = before
      return 'continue'
    }
    if (end !== 'continue') return end
  }
  return 'continue'
}

/** Evaluates one match or one statement. */
function step(table: FakeNftTable, text: RuleText, walk: Walk): End | 'no match' {
  if (text.take('counter', 'name')) {
    text.word()
    return 'continue'
  }
  if (text.take('counter')) return 'continue'
  if (text.take('limit', 'rate')) return overLimit(text, walk)
  if (text.take('log')) return logged(text)
  if (text.take('accept')) return 'accept'
  if (text.take('drop')) return 'drop'
  if (text.take('return')) return 'return'
  if (text.take('reject')) {
    walk.answer = rejectAnswer(text, walk.packet.l4proto)
    return walk.answer === undefined ? 'no match' : 'reject'
  }
  if (text.take('masquerade')) return 'accept'
  if (text.take('tcp', 'option', 'maxseg', 'size', 'set', 'rt', 'mtu')) return 'continue'
  if (text.take('notrack')) {
    walk.packet = { ...walk.packet, notrack: true }
    return 'continue'
  }
  if (text.take('meta', 'mark', 'set', 'meta', 'mark')) return setMark(text, walk)
  if (text.take('goto')) return afterGoto(enter(table, text.word(), walk))
  if (text.take('jump')) return afterJump(enter(table, text.word(), walk))
  if (text.take('dnat')) return translate(table, text, walk, 'daddr')
  if (text.take('snat')) return translate(table, text, walk, 'saddr')
  if (text.take('update')) return remember(table, text, walk)
  if (text.take('delete')) return forget(table, text, walk)
  return match(table, text, walk)
}

/** Reads `over 5/second`. Each packet counts as below the limit, unless the options say otherwise. */
function overLimit(text: RuleText, { isOverLimits }: Walk): End | 'no match' {
  const isOver = text.take('over')
  if (!/^\d+\/(second|minute)$/.test(text.word())) throw text.unknown()
  return isOver === isOverLimits ? 'continue' : 'no match'
}

/** Reads `prefix "access-node" group 7310 snaplen 64`. */
function logged(text: RuleText): End {
  if (text.take('prefix')) text.word()
  for (const word of ['group', 'snaplen']) if (text.take(word)) text.word()
  return 'continue'
}

function enter(table: FakeNftTable, name: string, walk: Walk): End {
  const chain = table.chains.get(name)
  if (chain === undefined) throw new Error(`no chain ${name} in ${table.name}`)
  return walkChain(table, chain, walk)
}

function afterGoto(end: End): End {
  return end === 'continue' ? 'return' : end
}

function afterJump(end: End): End {
  return end === 'return' ? 'continue' : end
}

/** Reads `numgen random mod 2 offset 5` or `jhash ip saddr mod 2 seed 0x1`. Undefined if something else follows. */
function drawn(text: RuleText, walk: Walk): string | undefined {
  if (!text.take('numgen') && !text.take('jhash')) return undefined
  text.skipUntil('mod')
  const number = walk.draw(Number(text.word()))
  if (text.take('seed')) text.word()
  return String(number + (text.take('offset') ? Number(text.word()) : 0))
}

/** Reads `@m { ip saddr . th dport timeout 60s : ip daddr }`. An element that exists keeps its value. */
function remember(table: FakeNftTable, text: RuleText, walk: Walk): End | 'no match' {
  const { map, key, value } = rememberedElement(table, text, walk)
  if (key === undefined || value === undefined) return 'no match'
  if (!map.elements.has(key)) {
    if (map.elements.size >= (map.type.size ?? Infinity)) return 'no match'
    map.elements.set(key, value)
  }
  return 'continue'
}

function forget(table: FakeNftTable, text: RuleText, walk: Walk): End {
  const { map, key } = rememberedElement(table, text, walk)
  if (key !== undefined) map.elements.delete(key)
  return 'continue'
}

function rememberedElement(table: FakeNftTable, text: RuleText, walk: Walk) {
  const map = table.maps.get(text.word().slice(1))
  if (map?.type.flags?.includes('dynamic') !== true || !text.take('{')) throw text.unknown()
  const key = concat(text, walk)
  if (text.take('timeout')) text.word()
  if (!text.take(':')) throw text.unknown()
  const value = concat(text, walk)
  if (!text.take('}')) throw text.unknown()
  return { map, key, value }
}

function verdictOf(table: FakeNftTable, verdict: string | undefined, walk: Walk): End | 'no match' {
  if (verdict === undefined) return 'no match'
  const [word = '', target = ''] = verdict.split(' ')
  if (word === 'goto') return afterGoto(enter(table, target, walk))
  if (word === 'jump') return afterJump(enter(table, target, walk))
  if (word === 'accept' || word === 'drop' || word === 'return' || word === 'continue') return word
  throw new Error(`the tracer does not know the verdict ${verdict}`)
}

/** Reads `dnat [ip] to 10.0.0.1[:80]` or `[fd00::1]:80`, `… to ip daddr . th dport map @m`, `snat [ip] to ip saddr`. */
function translate(table: FakeNftTable, text: RuleText, walk: Walk, field: 'saddr' | 'daddr'): End | 'no match' {
  if (!text.take('ip')) text.take('ip6')
  if (!text.take('to')) throw text.unknown()
  let target = plainTarget(text) ?? concat(text, walk)
  if (target === undefined) return 'no match'
  if (text.take('map')) target = table.maps.get(text.word().slice(1))?.elements.get(target)
  if (target === undefined) return 'no match'
  const [address = '', port] = target.split(' . ')
  const original = field === 'daddr' ? { originalDaddr: walk.packet.originalDaddr ?? walk.packet.daddr } : {}
  const ports = port === undefined ? {} : { [field === 'daddr' ? 'dport' : 'sport']: Number(port) }
  walk.packet = { ...walk.packet, ...original, [field]: address, ...ports }
  return 'accept'
}

/**
 * Reads an address with or without a port, and returns it as a map does: `10.0.0.1 . 80`. Returns undefined and reads
 * nothing if something else follows.
 */
function plainTarget(text: RuleText): string | undefined {
  const [, bracketed, plain, port] =
    /^(?:\[([\da-f:]+)\]|([\d.]+|[\da-f]*:[\da-f:]*:[\da-f]*))(?::(\d+))?$/.exec(text.peek) ?? []
  const address = bracketed ?? plain
  if (address === undefined) return undefined
  text.word()
  return port === undefined ? address : `${address} . ${port}`
}

function match(table: FakeNftTable, text: RuleText, walk: Walk): End | 'no match' {
  const field = text.peekAt(1)
  const value = concat(text, walk)
  if (text.take('set')) return rewrite(table, text, walk, field === 'saddr' ? 'saddr' : 'daddr')
  if (text.take('vmap')) {
    const verdicts = text.peek.startsWith('@') ? namedMap(table, text.word()) : text.pairs()
    if (value === undefined) return 'no match'
    return verdictOf(table, verdicts.get(value) ?? intervalValue(verdicts, value), walk)
  }
  const negated = text.take('!=')
  text.take('==')
  const wanted = text.peek.startsWith('@') ? [...namedMap(table, text.word()).keys()] : text.list()
  const held = value !== undefined && wanted.some((item) => equals(item, value))
  return held === negated ? 'no match' : 'continue'
}

/** Reads `ip daddr & 0.0.255.255 | 10.42.0.0`, `ct original ip daddr`, or a lookup in a map, after `ip daddr set`. */
function rewrite(table: FakeNftTable, text: RuleText, walk: Walk, field: 'saddr' | 'daddr'): End | 'no match' {
  const isMasked = ['&', 'and'].includes(text.peekAt(2))
  if (!isMasked) {
    const value = concat(text, walk)
    const found = text.take('map') && value !== undefined ? namedMap(table, text.word()).get(value) : value
    if (found === undefined) return 'no match'
    // Connection tracking has seen the packet before a nat chain does.
    const { originalDaddr = walk.packet.daddr, ...packet } = walk.packet
    const isRestored = field === 'daddr' && found === originalDaddr
    walk.packet = { ...packet, ...(isRestored ? {} : { originalDaddr }), [field]: found }
    return 'continue'
  }
  if (!text.take('ip', field) || !(text.take('&') || text.take('and'))) throw text.unknown()
  const mask = parseAddress(text.word()).value
  if (!(text.take('|') || text.take('or'))) throw text.unknown()
  const network = parseAddress(text.word()).value
  const value = (parseAddress(walk.packet[field]).value & mask) | network
  walk.packet = { ...walk.packet, [field]: formatAddress({ family: 4, value }) }
  return 'continue'
}

/** Reads `| 0x2000` or `& 0xffffdfff` of a rule that sets the mark. */
function setMark(text: RuleText, walk: Walk): End {
  const { mark = 0 } = walk.packet
  const isAdded = text.take('|')
  if (!isAdded && !text.take('&')) throw text.unknown()
  const bits = Number(text.word())
  walk.packet = { ...walk.packet, mark: (isAdded ? mark | bits : mark & bits) >>> 0 }
  return 'continue'
}

/** Reads one selector, or several joined by dots. Undefined if the packet lacks such a field. */
function concat(text: RuleText, walk: Walk): string | undefined {
  const parts: (string | undefined)[] = []
  do parts.push(drawn(text, walk) ?? select(text, walk.packet))
  while (text.take('.'))
  return parts.includes(undefined) ? undefined : parts.join(' . ')
}

function select(text: RuleText, packet: TracePacket): string | undefined {
  if (text.take('iifname')) return packet.iif ?? ''
  if (text.take('oifname')) return packet.oif ?? ''
  for (const ip of ['ip', 'ip6'] as const) {
    if (text.take(ip, 'saddr')) return packet.saddr
    if (text.take(ip, 'daddr')) return packet.daddr
    if (text.take('ct', 'original', ip, 'daddr')) return packet.originalDaddr ?? packet.daddr
    if (text.take('ct', 'original', ip, 'saddr')) return packet.originalSaddr ?? packet.saddr
    if (text.take('ct', 'reply', ip, 'saddr')) return packet.replySaddr ?? packet.daddr
  }
  if (text.take('ether', 'saddr')) return packet.etherSaddr
  if (text.take('meta', 'l4proto')) return packet.l4proto
  if (text.take('fib', 'daddr', 'type')) return packet.local === true ? 'local' : 'unicast'
  if (text.take('ip', 'frag-off', '&', '0x1fff') || text.take('frag', 'frag-off'))
    return packet.fragment === true ? '185' : '0'
  // Parts without the first have no header of their protocol.
  if (packet.fragment === true && ['th', 'tcp', 'udp', 'icmp', 'icmpv6'].includes(text.peek)) {
    select(text, { ...packet, fragment: false })
    return undefined
  }
  if (text.take('th', 'dport')) return packet.dport?.toString()
  if (text.take('th', 'sport')) return packet.sport?.toString()
  for (const protocol of ['tcp', 'udp'] as const) {
    if (text.take(protocol, 'dport')) return packet.l4proto === protocol ? packet.dport?.toString() : undefined
    if (text.take(protocol, 'sport')) return packet.l4proto === protocol ? packet.sport?.toString() : undefined
  }
  if (text.take('tcp', 'flags', '&', 'rst'))
    return packet.l4proto === 'tcp' ? (packet.rst === true ? '1' : '0') : undefined
  const hasMask = text.take('tcp', 'flags', '&', '(syn', '|', 'ack)')
  if (hasMask || text.take('tcp', 'flags')) return packet.l4proto === 'tcp' && packet.syn === true ? 'syn' : undefined
  for (const protocol of ['icmp', 'icmpv6'] as const) {
    if (text.take(protocol, 'type')) return icmpType(packet, protocol)
  }
  // A packet of the tracer is no error about another one.
  if (text.take('icmp', 'code') || text.take('icmpv6', 'code') || text.take('ct', 'original', 'protocol'))
    return undefined
  if (text.take('ct', 'original', 'proto-dst')) return (packet.originalDport ?? packet.dport)?.toString()
  if (text.take('ct', 'direction')) return packet.notrack === true ? undefined : (packet.ctDirection ?? 'original')
  if (text.take('ct', 'state')) return packet.notrack === true ? 'untracked' : (packet.ctState ?? 'new')
  if (text.take('ct', 'status')) return packet.originalDaddr === undefined ? '' : 'dnat'
  throw text.unknown()
}

/** Returns the type with its protocol, `icmpv6 type 2`, because types differ between protocols. */
function icmpType({ l4proto, icmpType: type }: TracePacket, protocol: 'icmp' | 'icmpv6'): string | undefined {
  return l4proto === protocol && type !== undefined ? `${protocol} type ${type}` : undefined
}

/**
 * Compares with `wanted` from a rule or a set: a name, a number, a prefix, a range, or a device name with a final `*`.
 */
function equals(wanted: string, value: string): boolean {
  const plain = wanted.replaceAll('"', '')
  if (plain === value || (ICMPV6_NAMES.includes(plain) && value === 'icmpv6')) return true
  const [, protocol, type] = /^(icmp|icmpv6) type (\d+)$/.exec(value) ?? []
  if (type !== undefined) return isIcmpType(protocol as 'icmp' | 'icmpv6', plain, Number(type))
  if (plain.endsWith('*')) return value.startsWith(plain.slice(0, -1))
  return isAddress(value) && isAddress(plain.split(/[/-]/)[0] ?? '') && intervalContains(plain, value)
}

/** Names of protocol 58 in rules and listings. */
const ICMPV6_NAMES: readonly string[] = ['ipv6-icmp', '58']

const MAC = /^(?:[\da-f]{2}:){5}[\da-f]{2}$/i

function isAddress(text: string): boolean {
  return !MAC.test(text) && /^\d+(?:\.\d+){3}$|^[\da-f]*:[\da-f]*:[\da-f:]*$/i.test(text)
}

function namedMap(table: FakeNftTable, reference: string): ReadonlyMap<string, string | undefined> {
  const found = table.maps.get(reference.slice(1))
  if (found === undefined) throw new Error(`no map or set ${reference} in ${table.name}`)
  return found.elements
}

function intervalValue(verdicts: ReadonlyMap<string, string | undefined>, value: string): string | undefined {
  return [...verdicts].find(([key]) => equals(key, value))?.[1]
}
