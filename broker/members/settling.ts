/**
 * After a restore: members say what they hold of the time that is lost. Until they have, or for ten minutes, nobody gets
 * a number that one of them may hold. Runs inside transactions.
 *
 *   restored ──served──► settling ──all have said, or 10 min──► settled
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

/** Members call again within seconds; a cluster that is switched off must not keep others from joining. */
const SETTLE_MS = 10 * 60_000

/** The latest restore, while certificates of the time that is lost may be good; undefined: there is none. */
export function recentRestore(view: LogView, nowMs: number): RestoreRow | undefined {
  const row = view.get('restore', RESTORE_KEY)
  return row !== undefined && nowMs < Math.max(row.atMs, row.untilMs ?? 0) + MEMBER_VALIDITY_MS ? row : undefined
}

/** To be called before members are answered. */
export function beginSettling(tx: Transaction, nowMs: number): void {
  const row = tx.get('restore', RESTORE_KEY)
  if (row !== undefined && row.untilMs === undefined)
    tx.put('restore', RESTORE_KEY, { ...row, untilMs: nowMs + SETTLE_MS })
}

/** Whether a member that joined since may still come back, and with it what hangs on it. */
export function isAwaiting(view: LogView): boolean {
  return view.get('restore', RESTORE_KEY) !== undefined && view.count('awaited') > 0
}

/** To be called now and then: once no certificate of the time that is lost is good any more, nobody is asked. */
export function pruneRestore(tx: Transaction, nowMs: number): void {
  if (tx.get('restore', RESTORE_KEY) !== undefined && recentRestore(tx, nowMs) === undefined)
    tx.remove('restore', RESTORE_KEY)
}

/** Whether this member is to be asked what it holds. */
export function asksHeld(view: LogView, cluster: string, nowMs: number): boolean {
  return recentRestore(view, nowMs)?.waiting.includes(cluster) === true
}

/** What the answer to its declaration says of it. */
export function askHeld(
  { log, clock }: { readonly log: RecordLog; readonly clock: Pick<Clock, 'now'> },
  cluster: string,
): { readonly asksHeld?: string } {
  return asksHeld(log, cluster, clock.now()) ? { asksHeld: log.epoch } : {}
}

/** The member has said all that it holds, or is of a release that says nothing. */
export function noteAnswered(tx: Transaction, cluster: string): void {
  const row = tx.get('restore', RESTORE_KEY)
  if (row?.waiting.includes(cluster) === true)
    tx.put('restore', RESTORE_KEY, { ...row, waiting: row.waiting.filter((one) => one !== cluster) })
}

/** A member that was awaited has come: it may hold what others do not. */
export function noteReturned(tx: Transaction, cluster: string): void {
  const row = tx.get('restore', RESTORE_KEY)
  if (row !== undefined && !row.waiting.includes(cluster))
    tx.put('restore', RESTORE_KEY, { ...row, waiting: [...row.waiting, cluster] })
}

/** What was given away since is known, as far as anybody says. */
export function isSettled(row: RestoreRow | undefined, nowMs: number): boolean {
  return row?.untilMs === undefined || row.waiting.length === 0 || nowMs >= row.untilMs
}

/** Throws RefusedError while a new number could be one that is in use. */
export function checkSettled(view: LogView, nowMs: number): void {
  const row = view.get('restore', RESTORE_KEY)
  if (row?.untilMs === undefined || isSettled(row, nowMs)) return
  const some = row.waiting.slice(0, 5).join(', ')
  const more = row.waiting.length > 5 ? ` and ${row.waiting.length - 5} more` : ''
  throw new RefusedError(
    'RestoreSettling',
    'cluster',
    `cluster: the broker was restored from a backup of ${timeText(row.takenAtMs)}, and ${some}${more} have not said yet ` +
      `what was given away since: try again when they are in contact, or after ${timeText(row.untilMs)}`,
  )
}

// Takes back what a member holds of the time between a backup and its restore: its own blocks, addresses of services,
// and what is known of members that are not known here. Only what nobody has; nobody loses anything by it. Runs inside
// a transaction.

interface Taken {
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
