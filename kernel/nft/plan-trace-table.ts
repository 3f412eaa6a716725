/**
 * Plans a table that makes the kernel trace the packets of one call, and those of its answers. Pure.
 *
 *   enters, starts: the first chains of packets from devices and of this machine ─► traced from here on
 *   arrives, leaves: the last chains of packets for this machine and of those that leave it; they change nothing
 *
 * The elements of its sets end by themselves, so that a table which stays behind traces nothing.
 */
import type { NftBaseChain, NftFamily, NftStatement } from './nft-transaction.ts'

/** The packets: every combination of these. */
export interface TracedCall {
  readonly protocol: 'tcp' | 'udp'
  /** The port of the caller. */
  readonly sourcePort: number
  /** Addresses of the caller, before and after they are rewritten. Empty: any. */
  readonly sources: readonly string[]
  /** The called addresses, before and after they are rewritten. */
  readonly destinations: readonly string[]
  /** The called ports, before and after they are rewritten. */
  readonly ports: readonly number[]
}

const TRACE_CHAINS = { enters: 'enters', starts: 'starts', arrives: 'arrives', leaves: 'leaves' } as const

const SET_SOURCES = 'sources'
const SET_DESTINATIONS = 'destinations'
const SET_PORTS = 'ports'
/** Each table of a trace has it, and it always has elements until the trace ends. */
export const SET_MARKERS = 'markers'

/** Before connection tracking and all tables of ours, behind the defragmentation of the kernel. */
const FIRST = -350
/** Behind all tables of ours and the source translation of others. */
const LAST = 350

export interface TraceTable {
  readonly table: string
  readonly family: NftFamily
  readonly call: TracedCall
  /** UDP ports of loopback, whose packets show how far the output of the trace is. */
  readonly markers: readonly number[]
  /** After this time nothing is traced. */
  readonly seconds: number
  /** See NftStatement. */
  readonly owned: boolean
}

export function planTraceTable(init: TraceTable): NftStatement[] {
  const { table, family, call, markers, seconds, owned } = init
  const { protocol, sourcePort, sources } = call
  const type = family === 'ip' ? 'ipv4_addr' : 'ipv6_addr'
  const map = (name: string, key: string, keys: readonly (string | number)[]): NftStatement[] => [
    { verb: 'add-map', table, map: name, type: { kind: 'set', key, flags: ['timeout'] } },
    {
      ...{ verb: 'add-elements', table, map: name },
      elements: [...new Set(keys)].map((one) => ({ key: `${one} timeout ${seconds}s` })),
    },
  ]
  const end = (side: 'saddr' | 'daddr', set: string): string => `${family} ${side} @${set} `
  const [from, back] = sources.length === 0 ? ['', ''] : [end('saddr', SET_SOURCES), end('daddr', SET_SOURCES)]
  const asks = `${from}${end('daddr', SET_DESTINATIONS)}${protocol} sport ${sourcePort} ${protocol} dport @${SET_PORTS}`
  const answers = `${back}${end('saddr', SET_DESTINATIONS)}${protocol} sport @${SET_PORTS} ${protocol} dport ${sourcePort}`
  const traced = [asks, answers].map((match) => `${match} meta nftrace set 1`)
  // A packet shows its devices where a rule matches it. By then its addresses may be others.
  const shown = [`${protocol} sport ${sourcePort}`, `${protocol} dport ${sourcePort}`].map(
    (match) => `${match} continue`,
  )
  const chain = (name: string, base: NftBaseChain, rules: readonly string[]): NftStatement[] => [
    { verb: 'add-chain', table, chain: name, base },
    ...rules.map((rule): NftStatement => ({ verb: 'add-rule', table, chain: name, rule })),
  ]
  return [
    { verb: 'add-table', table, ...(owned ? { owned } : {}) },
    ...map(SET_MARKERS, 'inet_service', markers),
    ...(sources.length === 0 ? [] : map(SET_SOURCES, type, sources)),
    ...map(SET_DESTINATIONS, type, call.destinations),
    ...map(SET_PORTS, 'inet_service', call.ports),
    ...chain(TRACE_CHAINS.enters, { type: 'filter', hook: 'prerouting', priority: FIRST }, traced),
    ...chain(TRACE_CHAINS.starts, { type: 'filter', hook: 'output', priority: FIRST }, [
      ...traced,
      `oifname "lo" udp sport @${SET_MARKERS} udp dport @${SET_MARKERS} meta nftrace set 1`,
    ]),
    ...chain(TRACE_CHAINS.arrives, { type: 'filter', hook: 'input', priority: LAST }, shown),
    ...chain(TRACE_CHAINS.leaves, { type: 'filter', hook: 'postrouting', priority: LAST }, shown),
  ]
}
