/** Attacks with questions to the DNS server. */
import type { AttackRow } from './row.ts'

export const NAMES: readonly AttackRow[] = [
  {
    id: 'dns-tcp-half-message',
    tried: 'A question to be forwarded, then a length of 65,535, then the connection is closed.',
    holds: 'The question is forwarded once, and the next client is answered.',
    against: '`dns/server/tcp-server.ts`: a connection that is over is read no further, whatever is left of it.',
  },
  {
    id: 'dns-recursion-from-lane',
    tried: 'A remote pod asks a DNS that has upstreams for a name outside the clusterset.',
    holds: 'It is REFUSED, EDNS says `client_not_own`, and no upstream is asked. Names of the clusterset are answered.',
    against: '`dns/clients/clients.ts`: only what is of this site is forwarded; what comes by a lane is not.',
  },
  {
    id: 'dns-silent-zone',
    tried: 'One client asks for 1,200 names of a silent zone; another asks for 55 other names.',
    holds: 'All of the other client are answered.',
    against: '`dns/clients/client-limits.ts`: one client has half of the places at upstreams at most.',
  },
  {
    id: 'dns-large-upstream',
    tried: 'A client offers 65,535 octets by EDNS, and an upstream answers with 60,000.',
    holds: 'The client gets at most 1,232 octets, with TC; over TCP it gets all that TCP carries.',
    against: '`dns/forward/forwarder.ts` offers upstreams our own size, and cuts what is larger.',
  },
  {
    id: 'dns-reflection',
    tried: 'A forged sender repeats one query thousands of times, and thousands of unknown names.',
    holds: 'The sender gets a bounded number of answers; of the rest every second is its question alone, with TC.',
    against: '`dns/clients/clients.ts` counts answers that are alike for each /24 and /56.',
  },
]
