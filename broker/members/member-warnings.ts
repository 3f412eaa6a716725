/**
 * Warnings about members in the broker's log: leftovers of earlier releases, collisions between two members, and
 * contradictions within one member.
 */
import { isReservedId } from '../../model/model.ts'
import type { Peer } from '../../protocol/protocol.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { clashText, serviceClashes } from '../addresses/addresses.ts'
import type { BrokerMetrics } from '../config/config.ts'
import { isUnknownHere } from '../identity/identity.ts'
import { type LogView, type MemberRow, isLive } from '../store/store.ts'

/** Per round. `sealane cluster list` shows all. */
const MAX_LOGGED_CLASHES = 20
/**
 * Notes about addresses that are logged between two calls of reportNotesAgain(): a member may change its required
 * ranges repeatedly.
 */
const MAX_LOGGED_NOTES = 100
/** Limit of members that are logged, once each, because the database does not know their certificates. */
const MAX_REPORTED_UNKNOWN = 100

export interface MemberWarningsDeps {
  readonly log: LogView
  readonly clock: Pick<Clock, 'now'>
  readonly logger: Logger
  readonly metrics: Pick<BrokerMetrics, 'unknownCertificates'>
}

export class MemberWarnings {
  readonly #deps: MemberWarningsDeps
  #reportedClashes: ReadonlySet<string> = new Set()
  /** The notes that were logged about the addresses of each member. */
  readonly #reportedNotes = new Map<string, readonly string[]>()
  #loggedNotes = 0
  readonly #reportedUnknown = new Set<string>()

  constructor(deps: MemberWarningsDeps) {
    this.#deps = deps
  }

  /** Warns of members whose ids are reserved. The caller runs it once. */
  reportReservedIds(): void {
    const members = this.#deps.log.list('member')
    const ids = members.flatMap(({ key, value }) => (isLive(value) && isReservedId(key) ? [key] : []))
    if (ids.length === 0) return
    const clusters = ids.join(', ')
    this.#deps.logger.warn('members have ids that are now reserved; they remain members until they leave', {
      reason: 'ClusterIdReserved',
      clusters,
    })
  }

  /** Logs each clash once as long as it lasts. The caller runs it regularly. */
  reportClashes(): void {
    const texts = serviceClashes(this.#deps.log.list('member').map(({ key, value }) => [key, value])).map(clashText)
    const fresh = texts.filter((text) => !this.#reportedClashes.has(text))
    for (const why of fresh.slice(0, MAX_LOGGED_CLASHES))
      this.#deps.logger.warn('members cannot reach each other', { reason: 'ServicesOverPods', why })
    this.#reportedClashes = new Set(texts)
  }

  /**
   * Logs each note about the addresses of these members once. Notes beyond the limit are logged later, if they still
   * apply. Without ids: for all members.
   */
  reportNotes(ids?: readonly string[]): void {
    const { log, logger } = this.#deps
    if (ids === undefined) {
      const live = new Set(log.list('member').flatMap(({ key, value }) => (isLive(value) ? [key] : [])))
      for (const cluster of this.#reportedNotes.keys()) if (!live.has(cluster)) this.#reportedNotes.delete(cluster)
      this.reportNotes([...live])
      return
    }
    for (const cluster of ids) {
      const row = log.get('member', cluster)
      const before = this.#reportedNotes.get(cluster) ?? []
      const reported: string[] = []
      for (const note of isLive(row) ? (row.notes ?? []) : []) {
        if (!before.includes(note)) {
          if (this.#loggedNotes >= MAX_LOGGED_NOTES) continue
          this.#loggedNotes += 1
          logger.info('note on the addresses of a member', { cluster, note })
        }
        reported.push(note)
      }
      if (reported.length > 0) this.#reportedNotes.set(cluster, reported)
      else this.#reportedNotes.delete(cluster)
    }
  }

  /** As reportNotes(), and logs the notes that were beyond the limit before. The caller runs it regularly. */
  reportNotesAgain(): void {
    this.#loggedNotes = 0
    this.reportNotes()
  }

  /**
   * Reports a certificate that our CA issued and that the database does not know: the database was replaced by an older
   * state.
   */
  reportUnknown(peer: Peer): void {
    const { log, clock, logger, metrics } = this.#deps
    const { cluster, serial } = peer
    if (!isUnknownHere(log, peer, clock.now())) return
    metrics.unknownCertificates.inc()
    if (this.#reportedUnknown.has(cluster) || this.#reportedUnknown.size >= MAX_REPORTED_UNKNOWN) return
    this.#reportedUnknown.add(cluster)
    const why =
      'this database is older than the certificate, or a different one, so it may assign addresses that are in use; ' +
      'restore the latest backup'
    logger.error('a member uses a certificate that this broker does not know', {
      cluster,
      serial,
      reason: 'CertificateUnknown',
      why,
    })
  }
}

type State = 'live' | 'complete' | 'departed'

/**
 * Number of members in each state. It is updated per changed member, since a clusterset of a thousand members changes
 * all the time.
 */
export class MemberCounts {
  readonly #metrics: Pick<BrokerMetrics, 'members'>
  readonly #states = new Map<string, State>()
  readonly #counts: Record<State, number> = { live: 0, complete: 0, departed: 0 }

  constructor(metrics: Pick<BrokerMetrics, 'members'>) {
    this.#metrics = metrics
  }

  /** Counts all members. The caller runs it at the start and regularly. */
  recount(view: LogView): void {
    this.#states.clear()
    for (const state of Object.keys(this.#counts) as State[]) this.#counts[state] = 0
    this.take(
      view,
      view.list('member').map(({ key }) => key),
    )
  }

  /** Counts the changes of these members. */
  take(view: LogView, ids: readonly string[]): void {
    for (const id of ids) this.#move(id, stateOf(view.get('member', id)))
    const { live, complete, departed } = this.#counts
    this.#metrics.members.set(live + complete, { state: 'live' })
    this.#metrics.members.set(complete, { state: 'complete' })
    this.#metrics.members.set(departed, { state: 'departed' })
  }

  #move(id: string, now: State | undefined): void {
    const before = this.#states.get(id)
    if (before === now) return
    if (before !== undefined) this.#counts[before] -= 1
    if (now === undefined) this.#states.delete(id)
    else {
      this.#states.set(id, now)
      this.#counts[now] += 1
    }
  }
}

function stateOf(row: MemberRow | undefined): State | undefined {
  if (row === undefined) return undefined
  if (!isLive(row)) return 'departed'
  return row.complete ? 'complete' : 'live'
}
