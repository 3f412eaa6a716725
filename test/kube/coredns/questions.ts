/**
 * Questions about the clusterset of the worked examples (test/dns/zone-fixture.ts), which both our dns component and
 * CoreDNS' `multicluster` zone answer, and the intended differences between the two. docs/reference.md lists the
 * differences.
 */
import { TYPE, type WireMessage } from '../../dns/wire.ts'

export type Question = readonly [name: string, type: keyof typeof TYPE]

const of = (type: keyof typeof TYPE, ...names: readonly string[]): Question[] => names.map((name) => [name, type])

const ADDRESSED = [
  'web.shop.svc',
  'WEB.Shop.svc',
  'both.shop.svc',
  'pending.shop.svc',
  'db.shop.svc',
  'raw.shop.svc',
  'idle.shop.svc',
  'dual.shop.svc',
  'db-0.east.db.shop.svc',
  'db-1.east.db.shop.svc',
  'db-0.west.db.shop.svc',
  'db-1.west.db.shop.svc',
  'd.east.dual.shop.svc',
  'DB-0.East.db.shop.svc',
  '10-1-0-8.east.raw.shop.svc',
  'db-0.db.shop.svc',
  'db-0.north.db.shop.svc',
  'web-0.east.web.shop.svc',
  'east.db.shop.svc',
  'east.web.shop.svc',
  'none.shop.svc',
  'web.none.svc',
  'shop.svc',
  'none.svc',
  'svc',
  'pod',
  'x.y.z.db.shop.svc',
  'shop',
  '*.shop.svc',
  '_tcp.db.shop.svc',
  '_pg._tcp.db.shop.svc',
  '_http._tcp.web.shop.svc',
  'dns-version',
]

const SERVED = [
  'web.shop.svc',
  'both.shop.svc',
  'pending.shop.svc',
  'db.shop.svc',
  'raw.shop.svc',
  'idle.shop.svc',
  'dual.shop.svc',
  'none.shop.svc',
  '_http._tcp.web.shop.svc',
  '_https._tcp.web.shop.svc',
  '_HTTPS._TCP.web.shop.svc',
  '_http._udp.web.shop.svc',
  '_none._tcp.web.shop.svc',
  '_dns._udp.both.shop.svc',
  '_pg._tcp.db.shop.svc',
  '_pg._tcp.idle.shop.svc',
  '_pg._tcp.dual.shop.svc',
  '_metrics._tcp.dual.shop.svc',
  '_gone._tcp.dual.shop.svc',
  '_tcp.web.shop.svc',
  'db-0.east.db.shop.svc',
  'shop.svc',
]

export const QUESTIONS: readonly Question[] = [
  ...of('A', ...ADDRESSED),
  ...of('AAAA', ...ADDRESSED),
  ...of('SRV', ...SERVED),
  ...of('TXT', 'dns-version', 'web.shop.svc', 'none.shop.svc'),
  ...of('HTTPS', 'web.shop.svc', 'db.shop.svc', 'none.shop.svc'),
  ...of('PTR', 'web.shop.svc'),
  ...of('SOA', 'svc', 'web.shop.svc'),
  ...of('NS', 'web.shop.svc'),
  ['', 'A'],
]

/**
 * A difference of our answers, with the gist of both; `zone` is clusterset.local. The document contains the key `row`.
 */
export interface Difference {
  readonly row: string
  readonly question: Question
  readonly ours: string
  readonly coreDns: string
}

const inBoth = (row: string, name: string, ours: string, coreDns: string): Difference[] =>
  (['A', 'AAAA'] as const).map((type) => ({ row, question: [name, type], ours, coreDns }))
const PENDING = 'a ClusterSetIP service without address and ports'
const CLUSTER = '`<cluster>.<service>.<namespace>.svc`'
const PROTOCOL = '`_<protocol>.<service>.<namespace>.svc`'
const PORT_ADDRESS = 'A and AAAA of `_<port>._<protocol>.…`'
const VERSION = '`dns-version`'

export const DIFFERENCES: readonly Difference[] = [
  ...inBoth(PENDING, 'pending.shop.svc', 'NOERROR', 'NXDOMAIN'),
  { row: PENDING, question: ['pending.shop.svc', 'SRV'], ours: 'NOERROR', coreDns: 'NXDOMAIN' },
  ...inBoth(CLUSTER, 'east.db.shop.svc', 'NOERROR', 'NXDOMAIN'),
  ...inBoth(PROTOCOL, '_tcp.db.shop.svc', 'NOERROR', 'NXDOMAIN'),
  { row: PROTOCOL, question: ['_tcp.web.shop.svc', 'SRV'], ours: 'NOERROR', coreDns: 'NXDOMAIN' },
  ...inBoth('`pod`', 'pod', 'NXDOMAIN', 'NOERROR'),
  {
    row: PORT_ADDRESS,
    question: ['_pg._tcp.db.shop.svc', 'A'],
    ours: 'NOERROR',
    coreDns: ['NOERROR', ...['10.1.0.5', '10.1.0.6', '10.2.0.9'].map((ip) => `_pg._tcp.db.shop.svc.zone. ${ip}`)].join(
      '\n',
    ),
  },
  {
    row: PORT_ADDRESS,
    question: ['_http._tcp.web.shop.svc', 'A'],
    ours: 'NOERROR',
    coreDns: 'NOERROR\n_http._tcp.web.shop.svc.zone. 243.0.0.7',
  },
  {
    row: 'SRV of a service whose port has no name',
    question: ['raw.shop.svc', 'SRV'],
    ours: 'NOERROR',
    coreDns: 'NOERROR\nraw.shop.svc.zone. 0 * 9000 10-1-0-8.east.raw.shop.svc.zone.',
  },
  {
    row: 'SRV of `<hostname>.<cluster>.…`',
    question: ['db-0.east.db.shop.svc', 'SRV'],
    ours: 'NOERROR',
    coreDns: 'NOERROR\ndb-0.east.db.shop.svc.zone. 0 * 5432 db-0.east.db.shop.svc.zone.',
  },
  ...inBoth(VERSION, 'dns-version', 'NOERROR', 'NXDOMAIN'),
  {
    row: VERSION,
    question: ['dns-version', 'TXT'],
    ours: 'NOERROR\ndns-version.zone. 1.0.0',
    coreDns: 'NOERROR\ndns-version.zone. 1.1.0',
  },
]

/**
 * The code, and the records of the question's type in order, with names in lower case. The weight of SRV records is
 * left out: the specification does not define it, and the two divide a hundred in different ways.
 */
export function gist(message: WireMessage): string {
  const code = message.flags.split(' ').at(-1) ?? ''
  const records = message.answers.map(({ name, type, data }) => {
    const text = type === TYPE.SRV ? data.replace(/^(\d+) \d+ /, '$1 * ') : data
    return `${name} ${text}`.toLowerCase()
  })
  return [code, ...records.sort()].join('\n')
}
