/** Tells that a certificate was shown after it had been replaced: in the log, by a metric, and for `sealane cluster list`. */
import type { Peer } from '../protocol/broker-api.ts'
import type { Clock } from '../reconcile/clock.ts'
import type { Logger } from '../runtime/logger.ts'
import type { RecordLog } from './log/record-log.ts'
import type { BrokerMetrics } from './metrics.ts'
import { isLive } from './state.ts'
import { normalSerial } from './succession.ts'

/** Of one cluster, told this often at most: whoever has a copy may try without end. All are counted. */
const TELL_EVERY_MS = 60_000

export interface MisuseNotesDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Pick<BrokerMetrics, 'superseded'>
}

export class MisuseNotes {
  readonly #deps: MisuseNotesDeps
  /** By member: when it was told last, monotonic. */
  readonly #told = new Map<string, number>()

  constructor(deps: MisuseNotesDeps) {
    this.#deps = deps
  }

  /** To be called with a peer of a member whose certificate has been replaced. */
  note(peer: Peer): void {
    const { clock, logger, metrics, log } = this.#deps
    metrics.superseded.inc()
    const now = clock.monotonic()
    const told = this.#told.get(peer.cluster)
    if (told !== undefined && now - told < TELL_EVERY_MS) return
    for (const [cluster, at] of this.#told) if (now - at >= TELL_EVERY_MS) this.#told.delete(cluster)
    this.#told.set(peer.cluster, now)
    const { cluster, address } = peer
    const misuse = { atMs: clock.now(), serial: normalSerial(peer.serial), address }
    logger.error('a certificate was used after it had been replaced: somebody has a copy of this identity', {
      audit: 'certificate-stolen',
      cluster,
      serial: misuse.serial,
      address,
      advice: `sealane cluster rekey ${cluster}`,
    })
    const noted = log.transact((tx) => {
      const row = tx.get('member', cluster)
      if (isLive(row)) tx.put('member', cluster, { ...row, misuse })
    })
    noted.catch((error: unknown) => logger.debug('misuse not noted', { cluster, reason: String(error) }))
  }
}
