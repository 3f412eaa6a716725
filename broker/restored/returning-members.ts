/** Brings awaited members back when they call; who is refused meanwhile calls again. */
import { type Peer, RefusedError } from '../../protocol/broker-api.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { memberActor } from '../audit/audit-callers.ts'
import type { Audit } from '../audit/audit-trail.ts'
import type { RecordLog } from '../log/record-log.ts'
import type { WriteRules } from '../records/record-writes.ts'
import { isLive } from '../state/state.ts'
import { type Returned, isOfLostTime, mayReturn, returnMember } from './return-member.ts'
import { isSettled, recentRestore } from './settling.ts'

/** Each once: who cannot come back calls every few seconds. */
const MAX_LOGGED = 100

export interface ReturningMembersDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly audit: Pick<Audit, 'keep'>
}

export class ReturningMembers {
  readonly #deps: ReturningMembersDeps
  readonly #rules: WriteRules
  readonly #logged = new Set<string>()

  constructor(deps: ReturningMembersDeps, rules: WriteRules) {
    this.#deps = deps
    this.#rules = rules
  }

  /** Its certificate is of the time that is lost: that nobody here knows it says nothing of this state. */
  isExpected(peer: Peer): boolean {
    const restore = recentRestore(this.#deps.log, this.#deps.clock.now())
    return restore !== undefined && isOfLostTime(restore, peer)
  }

  /** To be called where a peer asks for something. Whether it gets that is for requireMember() to say. */
  note(peer: Peer): void {
    const { log, clock } = this.#deps
    if (isLive(log.get('member', peer.cluster)) || !this.isExpected(peer)) return
    if (!mayReturn(log, peer, clock.now())) {
      const isDue = isSettled(recentRestore(log, clock.now()), clock.now())
      if (isDue) this.#report(peer, { t: 'refused', why: 'no other member says which number and addresses it has' })
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

  /** A store that cannot be written may be written again when the member calls the next time. */
  #onError(peer: Peer, error: unknown): void {
    if (error instanceof RefusedError) this.#report(peer, { t: 'refused', why: error.message })
    else this.#deps.logger.debug('a member has not returned yet', { cluster: peer.cluster, why: String(error) })
  }

  #report({ cluster }: Peer, returned: Returned | undefined): void {
    const { logger } = this.#deps
    if (returned === undefined) return
    if (returned.t === 'returned') {
      const { index, had } = returned
      logger.info('a member that joined after the backup is one again', { cluster, index, had })
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
