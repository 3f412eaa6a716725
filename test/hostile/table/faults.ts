/** A bad day. */
import type { AttackRow } from './row.ts'

const KNOCKS =
  '`gateway/probe-loop.ts`: a knock at a silent gateway’s kernel lives for two seconds, and the last miss waits for as long as the way takes.'

const HANDSHAKES = '`gateway/handshake-times.ts`: how old a handshake is goes by the clock that never jumps.'

export const FAULTS: readonly AttackRow[] = [
  {
    id: 'restart-at-250-ms',
    tried: 'A gateway process is killed and started anew, with 250 ms of round trip between the gateways.',
    holds: 'The lane stays up at both ends, and no call is lost.',
    against: KNOCKS,
  },
  {
    id: 'restart-at-500-ms',
    tried: 'The same with a round trip of 500 ms.',
    holds: 'The lane stays up at both ends, and no call is lost.',
    against: KNOCKS,
  },
  {
    id: 'wall-clock-forward',
    tried:
      'The wall clock of a gateway’s machine is set forward by an hour; then the way is shut for some seconds, and the process is started anew.',
    holds:
      'The session is kept while the way is shut, the lane is back with it, and the handshake is told as old as it is.',
    against: HANDSHAKES,
  },
  {
    id: 'wall-clock-back',
    tried: 'The same with a clock that is set back by an hour.',
    holds:
      'The session is kept while the way is shut, the lane is back with it, and the handshake is told as old as it is.',
    against: HANDSHAKES,
  },
  {
    id: 'own-address-changes',
    tried: 'A gateway’s machine loses its address and gets another one, and then the first one back.',
    holds: 'The lane carries calls again within three seconds.',
    against: 'x',
  },
]
