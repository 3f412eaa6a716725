/**
 * A member that joined between a backup and its restore comes back: it shows a certificate of that time, and others have
 * said which number and addresses it has. Runs inside a transaction.
 */
import type { ClusterFacts, Peer } from '../../protocol/broker-api.ts'
import { admitFacts, publicCIDRs } from '../admission/admission-facts.ts'
import { nextIndex } from '../addresses/allocation.ts'
import type { LogView, Transaction } from '../log/record-log.ts'
import { writeMember } from '../members/member-addresses.ts'
import type { WriteContext } from '../records/record-writes.ts'
import { type HeldMember, type MemberRow, type RestoreRow, isLive } from '../state/state.ts'
import { agreedMember, awaitedIndexes } from './awaited-members.ts'
import { isSettled, noteReturned, recentRestore } from './settling.ts'
import { freeBlocks } from './take-held.ts'

/** Of one alone it could be a lie; public space of others is not taken on one member's word. */
const WORDS_FOR_PUBLIC_SPACE = 2

/**
 * Whether the peer is a member that is awaited: then returnMember() makes it one again. It has shown a certificate that
 * our authority has signed.
 */
export function mayReturn(view: LogView, peer: Peer, nowMs: number): boolean {
  const restore = recentRestore(view, nowMs)
  if (restore === undefined || isLive(view.get('member', peer.cluster))) return false
  return isOfLostTime(restore, peer) && view.get('awaited', peer.cluster) !== undefined
}

/** Whether it was issued between the backup and the restore. Certificates are dated in whole seconds. */
export function isOfLostTime({ takenAtMs, atMs }: RestoreRow, { issuedAtMs }: Peer): boolean {
  return issuedAtMs !== undefined && issuedAtMs >= Math.floor(takenAtMs / 1000) * 1000 && issuedAtMs <= atMs
}

export type Returned =
  /** `index` is another one than it had where that is a member's here. */
  | { readonly t: 'returned'; readonly index: number; readonly had: number }
  /** It joins again, with a token. */
  | { readonly t: 'refused'; readonly why: string }

/** Nothing is kept of a transaction that throws. */
export class ReturnsLater extends Error {
  constructor() {
    super('others would get other addresses than they had')
  }
}

/**
 * Undefined: it is not awaited any more. Throws RefusedError where there is no room for its addresses, and ReturnsLater
 * while members that it overlaps may still say what they had.
 */
export function returnMember(tx: Transaction, peer: Peer, context: WriteContext): Returned | undefined {
  const { cluster, rules, nowMs } = context
  const awaited = tx.get('awaited', cluster)
  const restore = recentRestore(tx, nowMs)
  const held = awaited === undefined ? undefined : agreedMember(awaited)
  if (held === undefined || restore === undefined || !mayReturn(tx, peer, nowMs)) return undefined
  const facts: ClusterFacts = {
    podCIDRs: held.podCIDRs,
    serviceCIDRs: held.serviceCIDRs,
    labels: held.labels,
    version: '',
  }
  const refused = admitFacts(facts, rules)
  if (refused !== undefined) return { t: 'refused', why: `${refused.field}: ${refused.message}` }
  const allowedCIDRs = publicCIDRs(facts, []).map(({ text }) => text)
  if (allowedCIDRs.length > 0 && held.words < WORDS_FOR_PUBLIC_SPACE)
    return { t: 'refused', why: `only one member says that it may state ${allowedCIDRs.join(', ')}` }
  tx.remove('awaited', cluster)
  const row = rowOf(tx, held, { context, restore, facts, allowedCIDRs })
  const renumbered = writeMember(tx, row, context)
  // Of members that have not called yet it is not known which blocks they had because of this one.
  if (!isSettled(restore, nowMs) && renumbered.length > 0) throw new ReturnsLater()
  noteReturned(tx, cluster)
  return { t: 'returned', index: row.index, had: held.index }
}

function rowOf(
  tx: Transaction,
  held: HeldMember,
  init: {
    readonly context: WriteContext
    readonly restore: RestoreRow
    readonly facts: ClusterFacts
    readonly allowedCIDRs: readonly string[]
  },
): MemberRow {
  const { context, restore, facts, allowedCIDRs } = init
  const { takenAtMs, atMs } = restore
  const old = tx.get('member', context.cluster)
  const blocks = { ...old?.blocks, ...Object.fromEntries(freeBlocks(tx, held, context)) }
  return {
    index: old?.index ?? heldIndex(tx, held.index),
    facts,
    allowedCIDRs,
    translated: held.globalCIDRs.length > 0,
    blocks,
    // It joined at some moment since.
    joinedAtMs: takenAtMs,
    lastSeenMs: takenAtMs,
    // The one that it shows takes this place: see isOfLostTime() in succession.ts.
    certificates: [],
    complete: false,
    restored: { takenAtMs, atMs },
  }
}

/** What an awaited member gets that joins with a token: as one that has left. */
export function awaitedMember(
  tx: Transaction,
  context: WriteContext,
): Pick<MemberRow, 'index' | 'blocks' | 'translated'> | undefined {
  const awaited = tx.get('awaited', context.cluster)
  const held = awaited === undefined ? undefined : agreedMember(awaited)
  if (held === undefined) return undefined
  const blocks = Object.fromEntries(freeBlocks(tx, held, context))
  return { index: heldIndex(tx, held.index), blocks, translated: held.globalCIDRs.length > 0 }
}

/** The number that it had, unless a member here has it. */
function heldIndex(tx: LogView, index: number): number {
  const taken = tx.list('member').map(({ value }) => value.index)
  return taken.includes(index) ? nextIndex([...taken, ...awaitedIndexes(tx)]) : index
}
