/**
 * After a restore, members report what they hold from the lost time, which is the time between the backup and the
 * restore. Until all have reported, or for ten minutes, no member gets an index that one of them may hold. Runs inside
 * transactions.
 *
 *   restored ──served──► settling ──all have reported, or 10 min──► settled
 */
import {
  containsAddress,
  containsPrefix,
  formatPrefix,
  overlaps,
  parseAddress,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { type ClusterSpec, type StoredRecord, isDnsLabel } from '../../model/model.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { MEMBER_VALIDITY_MS } from '../../protocol/identity/identity.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { heldBlocks, noteAwaited } from '../addresses/addresses.ts'
import type { WriteContext } from '../records/records.ts'
import {
  type LogView,
  RESTORE_KEY,
  type RecordLog,
  type RestoreRow,
  type Transaction,
  isLive,
  timeText,
} from '../store/store.ts'
import { writeMember } from './member-addresses.ts'

/** Connected members call again within seconds. A cluster that is switched off must not keep others from joining. */
const SETTLE_MS = 10 * 60_000

/** The latest restore, as long as certificates of the lost time may be valid. Undefined if there is none. */
export function recentRestore(view: LogView, nowMs: number): RestoreRow | undefined {
  const row = view.get('restore', RESTORE_KEY)
  return row !== undefined && nowMs < Math.max(row.atMs, row.untilMs ?? 0) + MEMBER_VALIDITY_MS ? row : undefined
}

/** The caller runs it before it answers members. */
export function beginSettling(tx: Transaction, nowMs: number): void {
  const row = tx.get('restore', RESTORE_KEY)
  if (row !== undefined && row.untilMs === undefined)
    tx.put('restore', RESTORE_KEY, { ...row, untilMs: nowMs + SETTLE_MS })
}

/** Whether a member that joined after the backup, and records that depend on it, may still return. */
export function isAwaiting(view: LogView): boolean {
  return view.get('restore', RESTORE_KEY) !== undefined && view.count('awaited') > 0
}

/** Removes the restore once no certificate of the lost time is valid. The caller runs it regularly. */
export function pruneRestore(tx: Transaction, nowMs: number): void {
  if (tx.get('restore', RESTORE_KEY) !== undefined && recentRestore(tx, nowMs) === undefined)
    tx.remove('restore', RESTORE_KEY)
}

/** Whether this member is to be asked what it holds. */
export function asksHeld(view: LogView, cluster: string, nowMs: number): boolean {
  return recentRestore(view, nowMs)?.waiting.includes(cluster) === true
}

/** The field of the answer to a declaration that asks the member for what it holds. */
export function askHeld(
  { log, clock }: { readonly log: RecordLog; readonly clock: Pick<Clock, 'now'> },
  cluster: string,
): { readonly asksHeld?: string } {
  return asksHeld(log, cluster, clock.now()) ? { asksHeld: log.epoch } : {}
}

/** The member has reported all that it holds, or its release does not report it. */
export function noteAnswered(tx: Transaction, cluster: string): void {
  const row = tx.get('restore', RESTORE_KEY)
  if (row?.waiting.includes(cluster) === true)
    tx.put('restore', RESTORE_KEY, { ...row, waiting: row.waiting.filter((one) => one !== cluster) })
}

/** An awaited member has returned: it may hold records that the others do not. */
export function noteReturned(tx: Transaction, cluster: string): void {
  const row = tx.get('restore', RESTORE_KEY)
  if (row !== undefined && !row.waiting.includes(cluster))
    tx.put('restore', RESTORE_KEY, { ...row, waiting: [...row.waiting, cluster] })
}

/** Whether all members have reported what was allocated in the lost time, or the time to wait for them is over. */
export function isSettled(row: RestoreRow | undefined, nowMs: number): boolean {
  return row?.untilMs === undefined || row.waiting.length === 0 || nowMs >= row.untilMs
}

/** Throws RefusedError as long as a new index could be one that is in use. */
export function checkSettled(view: LogView, nowMs: number): void {
  const row = view.get('restore', RESTORE_KEY)
  if (row?.untilMs === undefined || isSettled(row, nowMs)) return
  const some = row.waiting.slice(0, 5).join(', ')
  const more = row.waiting.length > 5 ? ` and ${row.waiting.length - 5} more` : ''
  throw new RefusedError(
    'RestoreSettling',
    'cluster',
    `cluster: the broker was restored from a backup of ${timeText(row.takenAtMs)}; these members have not reported yet ` +
      `which addresses were assigned since then: ${some}${more}. Try again when they are connected, or after ${timeText(row.untilMs)}`,
  )
}

// Takes back what a member holds of the time between a backup and its restore: its own blocks, addresses of services,
// and what it knows of members that are unknown here. Takes only what no other member has. Runs inside a transaction.

interface Taken {
  /** Number of services whose addresses are reserved for them. */
  readonly services: number
  readonly members: readonly string[]
  /** Number of records that contradict the store or cannot be correct. */
  readonly left: number
}

/** `context` is that of the member that holds the records. */
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

/** Stores the address as that of a service without exporters: the same service gets it first, others last. */
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
  // A member that is known here reports its own addresses.
  if (isLive(tx.get('member', spec.id))) return false
  return noteAwaited(tx, context.cluster, spec, context.nowMs)
}

/**
 * Only for pod CIDRs that the member states now: whether a block for another CIDR was allocated to it is unknown here.
 */
function takeOwnBlocks(tx: Transaction, spec: ClusterSpec, context: WriteContext): boolean {
  const row = tx.get('member', context.cluster)
  if (!isLive(row)) return false
  const blocks = freeBlocks(tx, spec, context)
  const own = [...blocks].filter(([cidr]) => row.facts.podCIDRs.includes(cidr) && row.blocks[cidr] === undefined)
  if (own.length === 0) return false
  writeMember(tx, { ...row, translated: true, blocks: { ...row.blocks, ...Object.fromEntries(own) } }, context)
  return true
}

/** Blocks by pod CIDR that are inside the range and belong to no other member. */
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
