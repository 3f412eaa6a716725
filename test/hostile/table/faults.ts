/** A bad day. */
import type { AttackRow } from './row.ts'

export const FAULTS: readonly AttackRow[] = [
  {
    id: 'dns-hand-over',
    tried:
      'A DNS process is replaced under load: the new one starts on the same port before it has read a single object, and the old one is ended once the new one listens.',
    holds: 'Every question over UDP and TCP, IPv4 and IPv6, has its right answer; none is lost, none is SERVFAIL.',
    against:
      'dns/opening.ts waits for the objects; dns/port-group.ts passes on what comes before dns/listener.ts closes',
  },
  {
    id: 'dns-blind-successor',
    tried: 'A second DNS process is started on a port that is served, and never gets to read its objects.',
    holds:
      'It leaves the port to the one that knows: no client hears a SERVFAIL. When that one ends, it listens and says SERVFAIL, never "no such name".',
    against: 'dns/opening.ts looks who else is on the port before it opens without its objects',
  },
  {
    id: 'dns-restart',
    tried:
      'A DNS process is ended while a client holds a connection open and says nothing, and another one is started after it.',
    holds: 'The first ends within two seconds, and the second answers on the same port.',
    against: 'dns/leaving.ts and dns/tcp-server.ts wait for answers, not for clients',
  },
]
