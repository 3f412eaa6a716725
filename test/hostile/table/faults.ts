/** A bad day. */
import type { AttackRow } from './row.ts'

export const FAULTS: readonly AttackRow[] = [
  {
    id: 'publish-range-regained',
    tried: 'A range of a member is carried again while 300 acknowledgements to it are under way.',
    holds: 'Its stream ends with FAILED_PRECONDITION that names the range, three times in three.',
    against: '`protocol/transport/pull-messages.ts`: who reads a stream never destroys it, so its status goes out.',
  },
  {
    id: 'publish-half-closed',
    tried: 'A member sends 300 changes and closes its half of the stream at once.',
    holds: 'All are acknowledged, then the stream ends with OK.',
    against: '`broker/publish-session.ts`: the last message is waited for (`onLast`).',
  },
  {
    id: 'publish-replaced-unasked',
    tried: 'A member opens a second Publish stream, and says nothing more on the first.',
    holds: 'The first ends with FAILED_PRECONDITION, the second is served.',
    against: '`broker/broker.ts`: a stream that is replaced is told so, also when it is silent.',
  },
  {
    id: 'publish-disk-full',
    tried: 'The database takes no writes, a member has 1,500 changes under way, and the broker is stopped.',
    holds: 'The stream ends with UNAVAILABLE; nothing that was not written is acknowledged.',
    against: '`protocol/transport/broker-service.ts`: waiting for the disk ends with the stream.',
  },
  {
    id: 'publish-unread-and-evicted',
    tried: 'A member that takes no answer (a window of 0 octets) is evicted.',
    holds: 'Its status can not be handed over, so its connection is closed within seconds.',
    against: '`protocol/transport/broker-service.ts`: who does not take its status in time is dropped.',
  },
  {
    id: 'clock-ahead-renewal',
    tried: "A member's clock is 17 hours ahead: each new certificate is due for renewal at once.",
    holds: 'It is renewed once, then minutes to hours lie between two; the log names both times.',
    against: '`agent/certificate-renewal.ts`: pauses that grow between renewals that follow each other.',
  },
  {
    id: 'clock-behind-renewal',
    tried: "A member's clock is 30 hours behind: its certificate would end before it is due.",
    holds: 'It is renewed at once and from then on by the monotonic clock; the log names both times.',
    against: '`agent/plan-renewal.ts`: whichever clock says first that two thirds are over.',
  },
  {
    id: 'broker-state-lost',
    tried: "A broker's database is gone and its key is there.",
    holds: 'It does not start, says which backup to restore, and starts with `--accept-empty`.',
    against: '`broker/state-mark.ts`: a key without its database is no first start.',
  },
  {
    id: 'broker-state-older',
    tried: "A broker's database is replaced by a copy from before the last member joined.",
    holds: 'It does not start, and says how much older the copy is.',
    against: '`broker/state-mark.ts`: a mark beside the key says how far the state had come.',
  },
  {
    id: 'broker-state-older-with-mark',
    tried: 'All of the state, the mark with it, is replaced by such a copy; the last member comes.',
    holds: 'It is refused, and the log says that the database is older than its certificate.',
    against: '`broker/membership.ts`: a certificate of our own that these rows cannot have forgotten.',
  },
]
