/** Questions to the DNS server. */
import type { AttackRow } from './row.ts'

export const NAMES: readonly AttackRow[] = [
  {
    id: 'dns-tcp-half-message',
    tried: 'A question to be forwarded, then a length of 65,535, then the connection is closed.',
    holds: 'The question is forwarded once, and the next client is answered.',
    against: '`dns/server/tcp-server.ts`: a connection that is over is read no further, whatever is left of it.',
  },
]
