/**
 * Decides whether firewalls certainly drop a packet. A rule that may accept the packet, or that is not understood,
 * makes the result uncertain. Considers only tables that see IPv4. Pure.
 */
import type { FirewallChain, FirewallRule, PacketMatch } from '../facts/facts.ts'

export type Hook = 'ingress' | 'prerouting' | 'input' | 'forward' | 'output' | 'postrouting'

/** The known properties of the packet, which is the first of its connection. */
export interface Packet {
  /** In the order in which the packet passes them. */
  readonly hooks: readonly Hook[]
  readonly protocol: 'udp' | 'tcp'
  readonly inDevice?: string
  readonly outDevice?: string
  readonly dport?: number
  readonly sport?: number
  /** Whether earlier packets in the other direction may have created a connection that this packet belongs to. */
  readonly mayBeAnswer: boolean
}

export interface Drop {
  /** For example, `table ip filter, chain FORWARD`. */
  readonly where: string
  /** What drops the packet. */
  readonly what: 'its policy' | 'a rule'
}

type Answer = 'yes' | 'no' | 'maybe'
type Outcome = { readonly t: 'passes' | 'returns' | 'unsure' } | { readonly t: 'dropped'; readonly drop: Drop }

const FAMILIES = new Set(['ip', 'inet', 'netdev'])
const MOST_JUMPS = 16

/** The first place that certainly drops the packet. Undefined if there is none. */
export function dropOf(chains: readonly FirewallChain[], packet: Packet): Drop | undefined {
  const known = chains.filter(({ family }) => FAMILIES.has(family))
  for (const hook of packet.hooks) {
    const bases = known.filter((chain) => chain.hook === hook)
    for (const base of bases.sort((a, b) => (a.priority ?? 0) - (b.priority ?? 0))) {
      const outcome = walk(known, base, packet, 0)
      if (outcome.t === 'dropped') return outcome.drop
      if (outcome.t === 'returns' && base.policy === 'drop' && base.omitted === 0) {
        return { where: placeOf(base), what: 'its policy' }
      }
    }
  }
  return undefined
}

function walk(chains: readonly FirewallChain[], chain: FirewallChain, packet: Packet, depth: number): Outcome {
  if (depth > MOST_JUMPS) return { t: 'unsure' }
  for (const rule of chain.rules) {
    const outcome = outcomeOf(chains, chain, rule, packet, depth)
    if (outcome !== undefined) return outcome
  }
  return { t: chain.omitted > 0 ? 'unsure' : 'returns' }
}

/** Undefined if the next rule is to be evaluated. */
function outcomeOf(
  chains: readonly FirewallChain[],
  chain: FirewallChain,
  rule: FirewallRule,
  packet: Packet,
  depth: number,
): Outcome | undefined {
  const { match, action, to } = rule
  const answer = isMeant(match, packet)
  if (answer === 'no' || action === 'none') return undefined
  const isSure = answer === 'yes'
  switch (action) {
    case 'accept':
      return { t: isSure ? 'passes' : 'unsure' }
    case 'return':
      return { t: isSure ? 'returns' : 'unsure' }
    case 'drop':
    case 'reject':
      return isSure ? { t: 'dropped', drop: { where: placeOf(chain), what: 'a rule' } } : undefined
    case 'jump':
    case 'goto':
      return jump(chains, chain, { to, isSure, isFinal: action === 'goto' }, packet, depth)
  }
}

function jump(
  chains: readonly FirewallChain[],
  { family, table }: FirewallChain,
  { to, isSure, isFinal }: { readonly to: string | undefined; readonly isSure: boolean; readonly isFinal: boolean },
  packet: Packet,
  depth: number,
): Outcome | undefined {
  const next = chains.find((one) => one.family === family && one.table === table && one.name === to)
  if (next === undefined) return { t: 'unsure' }
  const outcome = walk(chains, next, packet, depth + 1)
  if (outcome.t === 'returns') return isFinal ? { t: isSure ? 'returns' : 'unsure' } : undefined
  if (isSure) return outcome
  // The jump is uncertain: a drop there is not certain, but an accept there may count.
  return outcome.t === 'dropped' && !isFinal ? undefined : { t: 'unsure' }
}

function isMeant(match: PacketMatch, packet: Packet): Answer {
  const { inDevice, outDevice, protocol, dports, sports, states, other } = match
  const answers: Answer[] = [
    deviceAnswer(inDevice, packet.inDevice),
    deviceAnswer(outDevice, packet.outDevice),
    protocol === undefined || protocol === packet.protocol ? 'yes' : 'no',
    portAnswer(dports, packet.dport),
    portAnswer(sports, packet.sport),
    states === undefined ? 'yes' : stateAnswer(states, packet),
    other ? 'maybe' : 'yes',
  ]
  return answers.includes('no') ? 'no' : answers.includes('maybe') ? 'maybe' : 'yes'
}

/** `eth*` matches every device whose name begins with `eth`. */
function deviceAnswer(asked: string | undefined, device: string | undefined): Answer {
  if (asked === undefined) return 'yes'
  if (device === undefined) return 'maybe'
  return (asked.endsWith('*') ? device.startsWith(asked.slice(0, -1)) : device === asked) ? 'yes' : 'no'
}

function portAnswer(asked: PacketMatch['dports'], port: number | undefined): Answer {
  if (asked === undefined) return 'yes'
  if (port === undefined) return 'maybe'
  return asked.some(([first, last]) => port >= first && port <= last) ? 'yes' : 'no'
}

function stateAnswer(states: readonly string[], { mayBeAnswer }: Packet): Answer {
  const isNew = states.includes('new')
  const isOld = states.includes('established') || states.includes('related')
  if (!mayBeAnswer) return isNew ? 'yes' : 'no'
  return isNew && isOld ? 'yes' : isNew || isOld ? 'maybe' : 'no'
}

function placeOf({ family, table, name }: FirewallChain): string {
  return `table ${family} ${table}, chain ${name}`
}
