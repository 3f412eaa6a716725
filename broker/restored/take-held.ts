/**
 * Takes back what a member holds of the time between a backup and its restore: its own blocks, addresses of services,
 * and what is known of members that are not known here. Only what nobody has; nobody loses anything by it. Runs inside
 * a transaction.
 */
import {
  containsAddress,
  containsPrefix,
  formatPrefix,
  overlaps,
  parseAddress,
  parsePrefix,
} from '../../model/addresses/ip.ts'
import { isDnsLabel } from '../../model/ids.ts'
import type { ClusterSpec } from '../../model/objects.ts'
import type { StoredRecord } from '../../model/records.ts'
import type { Transaction } from '../log/record-log.ts'
import { writeMember } from '../members/member-addresses.ts'
import type { WriteContext } from '../records/record-writes.ts'
import { isLive } from '../state/state.ts'
import { heldBlocks, noteAwaited } from './awaited-members.ts'

export interface Taken {
  /** Services whose addresses are kept for them. */
  readonly services: number
  readonly members: readonly string[]
  /** Records that contradict what is known here, or cannot be right. */
  readonly left: number
}

/** `context` is of the member that holds them. */
export function takeHeld(tx: Transaction, records: readonly StoredRecord[], context: WriteContext): Taken {
  let services = 0
  let left = 0
  const members: string[] = []
  for (const { key, body } of records) {
    if (body.kind === 'ClusterSetIP') {
      if (takeAddress(tx, `${key.namespace}/${key.name}`, body.ips, context)) services += 1
      else left += 1
    } else if (body.kind === 'Cluster') {
      if (takeCluster(tx, body.spec, context)) members.push(body.spec.id)
      else left += 1
    } else {
      left += 1
    }
  }
  return { services, members, left }
}

/** As of a service that nobody exports any more: its address is used again last, and by itself first. */
function takeAddress(
  tx: Transaction,
  service: string,
  [ip]: readonly string[],
  { rules, nowMs }: WriteContext,
): boolean {
  const [namespace = '', name = ''] = service.split('/')
  if (ip === undefined || !isDnsLabel(namespace) || !isDnsLabel(name) || !isIn(rules.clustersetIpRange, ip))
    return false
  if (tx.get('serviceIp', service) !== undefined || tx.get('address', ip) !== undefined) return false
  tx.put('serviceIp', service, { ip, exporters: [], releasedAtMs: nowMs })
  tx.put('address', ip, { service })
  return true
}

function takeCluster(tx: Transaction, spec: ClusterSpec, context: WriteContext): boolean {
  if (spec.id === context.cluster) return takeOwnBlocks(tx, spec, context)
  // Of a member that is known here, it itself says what it has.
  if (isLive(tx.get('member', spec.id))) return false
  return noteAwaited(tx, context.cluster, spec, context.nowMs)
}

/** Of CIDRs that it states now: what it could have been given for another one is not known here. */
function takeOwnBlocks(tx: Transaction, spec: ClusterSpec, context: WriteContext): boolean {
  const row = tx.get('member', context.cluster)
  if (!isLive(row)) return false
  const blocks = freeBlocks(tx, spec, context)
  const own = [...blocks].filter(([cidr]) => row.facts.podCIDRs.includes(cidr) && row.blocks[cidr] === undefined)
  if (own.length === 0) return false
  writeMember(tx, { ...row, translated: true, blocks: { ...row.blocks, ...Object.fromEntries(own) } }, context)
  return true
}

/** Blocks by pod CIDR that are inside the range, and nobody else's. */
export function freeBlocks(
  tx: Transaction,
  held: Pick<ClusterSpec, 'podCIDRs' | 'globalCIDRs'>,
  { cluster, rules }: WriteContext,
): Map<string, string> {
  const range = parsePrefix(rules.globalRange)
  const others = tx.list('member').filter(({ key }) => key !== cluster)
  const taken = others.flatMap(({ value }) => Object.values(value.blocks).map((text) => parsePrefix(text)))
  const free = new Map<string, string>()
  for (const [cidr, block] of heldBlocks(held)) {
    if (!containsPrefix(range, block) || taken.some((one) => overlaps(one, block))) continue
    taken.push(block)
    free.set(cidr, formatPrefix(block))
  }
  return free
}

function isIn(range: string, text: string): boolean {
  try {
    return containsAddress(parsePrefix(range), parseAddress(text))
  } catch {
    return false
  }
}
