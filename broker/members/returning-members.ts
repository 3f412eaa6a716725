/**
 * Return of a member that joined between a backup and its restore: it shows a certificate of that time, and other
 * members have reported its index and addresses. Runs inside a transaction.
 */
import { type ClusterFacts, type Peer, RefusedError } from '../../protocol/protocol.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { agreedMember, awaitedIndexes, nextIndex } from '../addresses/addresses.ts'
import { type Audit, memberActor } from '../audit/audit.ts'
import { type WriteContext, type WriteRules, admitFacts, publicCIDRs } from '../records/records.ts'
import {
  type HeldMember,
  type LogView,
  type MemberRow,
  type RecordLog,
  type RestoreRow,
  type Transaction,
  isLive,
} from '../store/store.ts'
import { writeMember } from './member-addresses.ts'
import { freeBlocks, isSettled, noteReturned, recentRestore } from './settling.ts'

/**
 * Members that must report the same. One alone could lie, so its word grants neither public ranges nor labels, which
 * access policies believe.
 */
const WORDS_TO_BELIEVE = 2

/**
 * Whether the peer is an awaited member, which returnMember() makes a member again. The peer has shown a certificate
 * that our authority signed.
 */
export function mayReturn(view: LogView, peer: Peer, nowMs: number): boolean {
  const restore = recentRestore(view, nowMs)
  if (restore === undefined || isLive(view.get('member', peer.cluster))) return false
  return isOfLostTime(restore, peer) && view.get('awaited', peer.cluster) !== undefined
}

/** Whether the certificate was issued between the backup and the restore. Certificates are dated in whole seconds. */
export function isOfLostTime({ takenAtMs, atMs }: RestoreRow, { issuedAtMs }: Peer): boolean {
  return issuedAtMs !== undefined && issuedAtMs >= Math.floor(takenAtMs / 1000) * 1000 && issuedAtMs <= atMs
}

export type Returned =
  /** `index` differs from `had` if another member has that index here. */
  | { readonly t: 'returned'; readonly index: number; readonly had: number }
  /** The member must join again with a token. */
  | { readonly t: 'refused'; readonly why: string }

/** Thrown to roll the transaction back. */
export class ReturnsLater extends Error {
  constructor() {
    super('the return would change the addresses of other members')
  }
}

/**
 * Makes the peer a member again. Undefined if it is no longer awaited. Throws RefusedError if there is no room for its
 * addresses, and ReturnsLater as long as members that it overlaps may still report their addresses.
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
    labels: held.words < WORDS_TO_BELIEVE ? {} : held.labels,
    version: '',
  }
  const refused = admitFacts(facts, rules)
  if (refused !== undefined) return { t: 'refused', why: `${refused.field}: ${refused.message}` }
  const allowedCIDRs = publicCIDRs(facts, []).map(({ text }) => text)
  if (allowedCIDRs.length > 0 && held.words < WORDS_TO_BELIEVE)
    return { t: 'refused', why: `only one member reports that this member may use ${allowedCIDRs.join(', ')}` }
  tx.remove('awaited', cluster)
  const row = rowOf(tx, held, { context, restore, facts, allowedCIDRs })
  const renumbered = writeMember(tx, row, context)
  // The blocks that members had because of this one are unknown until those members have called.
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
    // Which labels a token stated is lost with the token. Members vouch for none of them, so they are none of
    // `tokenLabels`, and an operator approves what the member states instead.
    ...(Object.keys(held.labels).length === 0 ? {} : { approve: true }),
    translated: held.globalCIDRs.length > 0,
    blocks,
    // The exact time is lost: it joined at some time after the backup.
    joinedAtMs: takenAtMs,
    lastSeenMs: takenAtMs,
    // The certificate that it shows becomes the one in use. See isOfLostTime() in succession.ts.
    certificates: [],
    complete: false,
    restored: { takenAtMs, atMs },
  }
}

/** What an awaited member keeps that joins with a token, as a departed member would. */
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

/** The index that the member had, unless another member here has it. */
function heldIndex(tx: LogView, index: number): number {
  const taken = tx.list('member').map(({ value }) => value.index)
  return taken.includes(index) ? nextIndex([...taken, ...awaitedIndexes(tx)]) : index
}

/** Limit of log lines, each logged once: a member that cannot return calls every few seconds. */
const MAX_LOGGED = 100

interface ReturningMembersDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly audit: Pick<Audit, 'keep'>
}

/** Makes awaited members return when they call. The peer is refused in the meantime and calls again. */
export class ReturningMembers {
  readonly #deps: ReturningMembersDeps
  readonly #rules: WriteRules
  readonly #logged = new Set<string>()

  constructor(deps: ReturningMembersDeps, rules: WriteRules) {
    this.#deps = deps
    this.#rules = rules
  }

  /**
   * Whether the certificate is from the lost time. If so, that it is unknown here does not mean that the database is
   * outdated.
   */
  isExpected(peer: Peer): boolean {
    const restore = recentRestore(this.#deps.log, this.#deps.clock.now())
    return restore !== undefined && isOfLostTime(restore, peer)
  }

  /** The caller runs it for each request of a peer. requireMember() decides whether the request is granted. */
  note(peer: Peer): void {
    const { log, clock } = this.#deps
    if (isLive(log.get('member', peer.cluster)) || !this.isExpected(peer)) return
    if (!mayReturn(log, peer, clock.now())) {
      const isDue = isSettled(recentRestore(log, clock.now()), clock.now())
      if (isDue) this.#report(peer, { t: 'refused', why: 'no other member reports its index and addresses' })
      return
    }
    log
      .transact((tx) => this.#return(tx, peer))
      .then((returned) => this.#report(peer, returned))
      .catch((error: unknown) => this.#onError(peer, error))
  }

  #return(tx: Parameters<typeof returnMember>[0], peer: Peer): Returned | undefined {
    const { clock, audit } = this.#deps
    const { cluster } = peer
    const nowMs = clock.now()
    const returned = returnMember(tx, peer, { cluster, rules: this.#rules, nowMs })
    if (returned?.t !== 'returned') return returned
    const { index, had } = returned
    const details = { index, had }
    audit.keep(tx, { act: 'member.returned', result: 'ok', who: memberActor(peer), subject: cluster, details })
    return returned
  }

  /** A store that cannot be written now may be writable when the member calls again. */
  #onError(peer: Peer, error: unknown): void {
    if (error instanceof RefusedError) this.#report(peer, { t: 'refused', why: error.message })
    else this.#deps.logger.debug('a member has not returned yet', { cluster: peer.cluster, why: String(error) })
  }

  #report({ cluster }: Peer, returned: Returned | undefined): void {
    const { logger } = this.#deps
    if (returned === undefined) return
    if (returned.t === 'returned') {
      const { index, had } = returned
      logger.info('a member that joined after the backup is a member again', { cluster, index, had })
      return
    }
    const { why } = returned
    const line = `${cluster} ${why}`
    if (this.#logged.has(line) || this.#logged.size >= MAX_LOGGED) return
    this.#logged.add(line)
    const advice = `sealane token create --cluster-id ${cluster}`
    logger.warn('a member that joined after the backup has to join again', {
      reason: 'NotAMember',
      cluster,
      why,
      advice,
    })
  }
}
