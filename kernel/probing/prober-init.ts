/** What a prober needs, and what it tells. */
import type { ConnectionState } from '../../model/objects.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import type { Notice } from './notice-packet.ts'
import type { Pace } from './pace.ts'
import type { PeerHealthInit } from './peer-health.ts'
import type { OpenProbeSocket } from './probe-socket.ts'
import type { ProbedPeer } from './probed-peer.ts'

export interface ProberDeps<P extends ProbedPeer> {
  readonly clock: Clock
  readonly logger: Pick<Logger, 'warn' | 'error'>
  readonly openSocket: OpenProbeSocket
  /** What is counted: a question sent, an answer to one, and what was neither a peer's question nor such an answer. */
  readonly count: (what: 'sent' | 'answered' | 'ignored') => void
  /** Called at once on each change of state. */
  readonly onTransition: (peer: P, from: ConnectionState, to: ConnectionState) => void
  /** The same when an end that is up is doubted, or no longer. */
  readonly onDoubt: (peer: P, doubted: boolean) => void
  /** What a far end says beside its probes. True: it gets a receipt. Absent: nothing is heard. */
  readonly onNotice?: (peer: P, notice: Notice) => boolean
  /** The receipt for a notice of this process. */
  readonly onReceipt?: (peer: P, notice: Notice) => void
  /** The same when packets of other sizes get there than before. Absent: nobody wants to know. */
  readonly onSize?: (peer: P) => void
  /** Whether traffic flowed there in the last seconds. */
  readonly isBusy: (peer: P) => boolean
}

export interface ProberInit extends Omit<PeerHealthInit, 'startsUp'> {
  /** For the log: `lane 0`, `the overlay`. */
  readonly name: string
  /** The number that our questions carry. */
  readonly number: number
  readonly address: string
  /** Of both ends. */
  readonly port: number
  readonly pace?: Pace
}
