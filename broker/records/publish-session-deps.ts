/** What a Publish stream at the broker works with. */
import type { Peer, PublishReply } from '../../protocol/broker-api.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import type { Audit } from '../audit/audit-trail.ts'
import type { RecordLog } from '../log/record-log.ts'
import type { BrokerMetrics } from '../metrics.ts'
import type { ChangePace } from '../quota/change-pace.ts'
import type { WriteRules } from './record-writes.ts'
import type { StatusPace } from './status-pace.ts'
import type { WritePace } from './write-pace.ts'

export interface PublishSessionDeps {
  readonly statuses: StatusPace
  /** These are one for all streams of the member. */
  readonly pace: WritePace
  readonly changePace: ChangePace
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: BrokerMetrics
  readonly audit: Audit
}

export interface PublishSessionInit {
  readonly peer: Peer
  readonly rules: WriteRules
  readonly reply: (message: PublishReply) => void
  /** False when a newer stream of the same cluster has taken over; asked after the membership. */
  readonly isCurrent: () => boolean
  /** Ends the stream with the reason. */
  readonly end: (reason: Error) => void
  readonly onEnd: () => void
}
