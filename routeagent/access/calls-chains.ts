/**
 * The chains of table sealane_node for what the pods of this node call in other clusters. They exist from when something
 * is limited. Pure.
 *
 *   forward, output (after balancing) ─► @limited: a port of some namespaces? ─► calls-…: @pods-…, else dropped
 *                                     ─► leave ─► leave-first: @egress ─► leaves-…: @pods-…, else dropped
 *
 * Packets from lanes and the overlay are left out: the node of their pod has looked at them. Answers pass; each other
 * packet is looked up, so what is taken back ends at once. Who takes back says whether open connections are kept: for
 * egress, this cluster does; for a service, its exporter, and its ports then have the chain kept-… before calls-….
 */
import {
  type ElementChange,
  type ElementMaps,
  type NftBaseChain,
  type NftStatement,
  elementDiff,
} from '../../kernel/nft/nft.ts'
import { LANE_DEVICE_PREFIX, type NamespaceChoice } from '../../model/model.ts'
import type { AddressFamily } from '../world/world.ts'
import { chain, droppedIn, keptRules, map, namesComment } from './nft-parts.ts'
import { type CallsPlan, callsChain, keptChain, leavesChain } from './plan-calls.ts'

const MAP_LIMITED = 'limited'
const MAP_EGRESS = 'egress'
const OURS = `"${LANE_DEVICE_PREFIX}*"`
const ANSWER = 'ct direction reply return'

/** Before our other rules of these hooks, and after the balancing of what the node itself calls (-101). */
const base = (hook: 'forward' | 'output', priority: number): NftBaseChain => ({ type: 'filter', hook, priority })

/** A name for what exists once egress is limited, or connections are kept. Its end needs another table. */
export function fixedByCalls({ egress, keepsOpen }: CallsPlan): string {
  return [...(egress === undefined ? [] : ['egress']), ...(keepsOpen ? ['keepsOpen'] : [])].join(' ')
}

/** The chains and sets that are not in `existing`. `remote` is the set of prefixes of other clusters. */
export function callsStatements(
  plan: CallsPlan,
  existing: ReadonlySet<string>,
  table: { readonly family: AddressFamily; readonly remote: string; readonly sampled: boolean },
): NftStatement[] {
  const { family, remote } = table
  const dropped = droppedIn(table)
  const { nft: ip, type } = family
  const fresh = [...plan.groups].filter(([name]) => !existing.has(setOf(name)))
  const groups = fresh.flatMap(([name, { choice }]) => {
    const isIn = { rule: `${ip} saddr @${setOf(name)} return`, comment: shortened(choice) }
    return [
      map(setOf(name), { kind: 'set', key: type }),
      ...chain(callsChain(name), [ANSWER, isIn, dropped('access-namespace')]),
      ...chain(keptChain(name), [ANSWER, ...keptRules(callsChain(name), 'return'), `goto ${callsChain(name)}`]),
      ...chain(leavesChain(name), [isIn, dropped('access-egress')]),
    ]
  })
  const look = `${ip} daddr . meta l4proto . th dport vmap @${MAP_LIMITED}`
  const calls = [
    map(MAP_LIMITED, { kind: 'map', key: `${type} . inet_proto . inet_service`, value: 'verdict' }),
    ...chain('calls-forwarded', [`iifname != ${OURS} ${look}`], base('forward', -3)),
    ...chain('calls-local', [look], base('output', -3)),
  ]
  const leaves = [
    map(MAP_EGRESS, { kind: 'map', key: type, value: 'verdict', flags: ['interval'] }),
    ...chain('leave-first', [
      // Errors are no calls, and this node may send them about connections that it does not track.
      `${errorTypes(family.family)} return`,
      `${ip} daddr vmap @${MAP_EGRESS}`,
      dropped('access-egress'),
    ]),
    ...chain('leave', [ANSWER, ...(plan.keepsOpen ? keptRules('leave-first', 'return') : []), 'goto leave-first']),
    ...chain('leaves-forwarded', [`iifname != ${OURS} oifname ${OURS} jump leave`], base('forward', -2)),
    ...chain('leaves-local', [`${ip} daddr @${remote} jump leave`], base('output', -2)),
  ]
  return [
    ...groups,
    ...(plan.limited.size === 0 || existing.has(MAP_LIMITED) ? [] : calls),
    ...(plan.egress === undefined || existing.has(MAP_EGRESS) ? [] : leaves),
  ]
}

/** The names in `existing` once the plan has been applied. */
export function callsNames({ limited, egress, groups }: CallsPlan): string[] {
  return [
    ...[...groups.keys()].map(setOf),
    ...(limited.size === 0 ? [] : [MAP_LIMITED]),
    ...(egress === undefined ? [] : [MAP_EGRESS]),
  ]
}

export function callsElements({ limited, egress, groups }: CallsPlan): ElementMaps {
  return new Map<string, ReadonlyMap<string, string | undefined>>([
    ...(limited.size === 0 ? [] : [[MAP_LIMITED, limited] as const]),
    ...(egress === undefined ? [] : [[MAP_EGRESS, egress] as const]),
    ...[...groups].map(([name, { pods }]) => [setOf(name), new Map(pods.map((pod) => [pod, undefined]))] as const),
  ])
}

/** The changes of the elements. The chains and sets of the plan after them must exist. */
export function callsChanges(before: CallsPlan, after: CallsPlan): ElementChange[] {
  return before === after ? [] : elementDiff(callsElements(before), callsElements(after))
}

function setOf(group: string): string {
  return `pods-${group}`
}

function shortened({ names, selectors }: NamespaceChoice): string {
  const text = namesComment(names, selectors.length > 0 ? ['by labels'] : [])
  return text === '' ? 'no namespace' : text
}

function errorTypes(family: 4 | 6): string {
  return family === 4
    ? 'icmp type { destination-unreachable, time-exceeded, parameter-problem }'
    : 'icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem }'
}
