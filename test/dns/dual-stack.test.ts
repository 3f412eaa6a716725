/** The names of services with two IP families, and of services with only one (specification.md of KEP-1645). */
import t from 'tap'
import { OWN_PROCESS } from '../../dns/clients/clients.ts'
import { type DnsAnswer, answer } from '../../dns/zone/answer.ts'
import type { ServiceIndex } from '../../dns/zone/service-index.ts'
import { formatAnswer, formatRecord, printZone } from '../../dns/zone/zone-text.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { parseDnsName } from '../../model/dns-name.ts'
import type { ImportPort } from '../../model/objects.ts'
import { newPipeline } from './pipeline-fixture.ts'
import { TYPE, decode, query } from './wire.ts'
import { clusterSetIp, gateway, headless, slice, syncedIndex } from './zone-fixture.ts'
import { TYPE_A, TYPE_AAAA, TYPE_SRV } from '../../dns/message/wire.ts'

const S = 'shop.svc.clusterset.local.'
const HTTP: ImportPort = { name: 'http', protocol: 'TCP', port: 80 }
const PG: ImportPort = { name: 'pg', protocol: 'TCP', port: 5432 }
const TWIN = 'fd53:ea1a:4e00::f500:'
const TYPES: Readonly<Record<string, number>> = { A: TYPE_A, AAAA: TYPE_AAAA, SRV: TYPE_SRV }

/** Headless services: `db` has hostnames, `raw` has none, `four` and `six` have one family each. */
function zone(): MemoryApi {
  const api = new MemoryApi()
  const six = (service: string, from: string, endpoints: Parameters<typeof slice>[2]) =>
    slice(service, from, endpoints, [PG], 6)
  const objects = [
    clusterSetIp('web', ['245.0.0.1', `${TWIN}1`], [HTTP]),
    clusterSetIp('turned', [`${TWIN}2`, '245.0.0.2'], [HTTP]),
    clusterSetIp('only4', ['245.0.0.3'], [HTTP]),
    clusterSetIp('only6', [`${TWIN}4`], [HTTP]),
    headless('db', [PG]),
    slice(
      'db',
      'east',
      [
        { addresses: ['10.1.0.5'], hostname: 'db-0' },
        { addresses: ['10.1.0.6'], hostname: 'db-1', conditions: { ready: false } },
        { addresses: ['10.1.0.7'], hostname: 'db-2' },
      ],
      [PG],
    ),
    six('db', 'east', [
      { addresses: ['fd00:1::5'], hostname: 'db-0' },
      { addresses: ['fd00:1::6'], hostname: 'db-1' },
      { addresses: ['fd00:1::7'], hostname: 'db-2', conditions: { ready: false } },
    ]),
    six('db', 'west', [{ addresses: ['FD00:2:0:0::5'], hostname: 'db-0' }]),
    headless('raw', [PG]),
    slice('raw', 'east', [{ addresses: ['10.1.0.8'] }], [PG]),
    six('raw', 'east', [{ addresses: ['fd00:1::8'] }, { addresses: ['fd00:1::'] }, { addresses: ['fe80::1'] }]),
    headless('four', [PG]),
    slice('four', 'east', [{ addresses: ['10.1.0.9'], hostname: 'a' }], [PG]),
    headless('six', [PG]),
    six('six', 'east', [{ addresses: ['fd00:1::9'], hostname: 'a' }]),
  ]
  for (const object of objects) api.put(object)
  return api
}

function ask(index: ServiceIndex, question: string): DnsAnswer {
  const [text = '', type = ''] = question.split(' ')
  const name = parseDnsName(text)
  if (name.kind === 'malformed' || name.kind === 'notOurs') throw new Error(`${text} is ${name.kind}`)
  return answer(index, { name, type: TYPES[type] ?? 0 }, 0)
}

/** Returns the records of a positive answer, and only the reason of a negative one. */
function text(index: ServiceIndex, question: string): string {
  const lines = formatAnswer(ask(index, question)).split('\n')
  return lines.filter((line) => !lines[0]?.startsWith(';') || line.startsWith(';')).join('\n')
}

t.test('a clusterset IP of each family, whatever their order, and NODATA for one that is not there', async (t) => {
  const index = await syncedIndex(zone())
  const rows: [question: string, want: string][] = [
    [`web.${S} A`, `web.${S} 5 IN A 245.0.0.1`],
    [`web.${S} AAAA`, `web.${S} 5 IN AAAA ${TWIN}1`],
    [`web.${S} SRV`, `web.${S} 5 IN SRV 0 100 80 web.${S}`],
    [`_http._tcp.web.${S} SRV`, `_http._tcp.web.${S} 5 IN SRV 0 100 80 web.${S}`],
    [`_http._tcp.web.${S} AAAA`, '; NODATA'],
    [`turned.${S} A`, `turned.${S} 5 IN A 245.0.0.2`],
    [`turned.${S} AAAA`, `turned.${S} 5 IN AAAA ${TWIN}2`],
    [`only4.${S} AAAA`, '; NODATA'],
    [`only6.${S} A`, '; NODATA'],
    [`only6.${S} AAAA`, `only6.${S} 5 IN AAAA ${TWIN}4`],
    [`only6.${S} SRV`, `only6.${S} 5 IN SRV 0 100 80 only6.${S}`],
    [`none.${S} AAAA`, '; NXDOMAIN'],
  ]
  for (const [question, want] of rows) t.equal(text(index, question), want, question)
})

t.test('headless: each ready endpoint by its own family, under its own name', async (t) => {
  const index = await syncedIndex(zone())
  const rows: [question: string, want: string[]][] = [
    [`db.${S} A`, [`db.${S} 5 IN A 10.1.0.5`, `db.${S} 5 IN A 10.1.0.7`]],
    [`db.${S} AAAA`, ['fd00:1::5', 'fd00:1::6', 'fd00:2::5'].map((address) => `db.${S} 5 IN AAAA ${address}`)],
    [`db-0.east.db.${S} A`, [`db-0.east.db.${S} 5 IN A 10.1.0.5`]],
    [`db-0.east.db.${S} AAAA`, [`db-0.east.db.${S} 5 IN AAAA fd00:1::5`]],
    [`db-1.east.db.${S} A`, ['; NODATA']],
    [`db-1.east.db.${S} AAAA`, [`db-1.east.db.${S} 5 IN AAAA fd00:1::6`]],
    [`db-2.east.db.${S} AAAA`, ['; NODATA']],
    [`db-0.west.db.${S} A`, ['; NODATA']],
    [`db-0.west.db.${S} AAAA`, [`db-0.west.db.${S} 5 IN AAAA fd00:2::5`]],
    [`db-1.west.db.${S} AAAA`, ['; NXDOMAIN']],
    [`raw.${S} A`, [`raw.${S} 5 IN A 10.1.0.8`]],
    [`raw.${S} AAAA`, [`raw.${S} 5 IN AAAA fd00:1::`, `raw.${S} 5 IN AAAA fd00:1::8`]],
    [`fd00-1--8.east.raw.${S} AAAA`, [`fd00-1--8.east.raw.${S} 5 IN AAAA fd00:1::8`]],
    [`fd00-1--8.east.raw.${S} A`, ['; NODATA']],
    [`fd00-1--0.east.raw.${S} AAAA`, [`fd00-1--0.east.raw.${S} 5 IN AAAA fd00:1::`]],
    [`10-1-0-8.east.raw.${S} AAAA`, ['; NODATA']],
    [`four.${S} AAAA`, ['; NODATA']],
    [`a.east.four.${S} AAAA`, ['; NODATA']],
    [`six.${S} A`, ['; NODATA']],
    [`six.${S} AAAA`, [`six.${S} 5 IN AAAA fd00:1::9`]],
  ]
  for (const [question, want] of rows) t.same(text(index, question).split('\n'), want, question)
})

t.test('SRV: every endpoint of either family once, with all of its addresses beside', async (t) => {
  const index = await syncedIndex(zone())
  const targets = ['db-0.east', 'db-1.east', 'db-2.east', 'db-0.west']
  for (const owner of [`db.${S}`, `_pg._tcp.db.${S}`]) {
    const found = ask(index, `${owner} SRV`)
    t.same(
      formatAnswer(found).split('\n'),
      targets.map((target) => `${owner} 5 IN SRV 0 25 5432 ${target}.db.${S}`),
    )
    t.same(found.kind === 'answer' ? found.additional.map(formatRecord) : [], [
      `db-0.east.db.${S} 5 IN A 10.1.0.5`,
      `db-0.east.db.${S} 5 IN AAAA fd00:1::5`,
      `db-1.east.db.${S} 5 IN AAAA fd00:1::6`,
      `db-2.east.db.${S} 5 IN A 10.1.0.7`,
      `db-0.west.db.${S} 5 IN AAAA fd00:2::5`,
    ])
  }
  const pods = ['10-1-0-8', 'fd00-1--0', 'fd00-1--8']
  t.same(
    text(index, `raw.${S} SRV`).split('\n'),
    pods.map((pod) => `raw.${S} 5 IN SRV 0 33 5432 ${pod}.east.raw.${S}`),
    'without a name of its own, a pod of two addresses is two',
  )
  const web = ask(index, `web.${S} SRV`)
  t.same(web.kind === 'answer' ? web.additional.map(formatRecord) : [], [
    `web.${S} 5 IN A 245.0.0.1`,
    `web.${S} 5 IN AAAA ${TWIN}1`,
  ])
})

t.test('the zone as text', async (t) => {
  const index = await syncedIndex(zone())
  const services = ['web', 'six'].map((name) => index.service('shop', name)!)
  t.equal(
    printZone(index, services),
    `web.${S} 5 IN A 245.0.0.1
web.${S} 5 IN AAAA ${TWIN}1
web.${S} 5 IN SRV 0 100 80 web.${S}
six.${S} 5 IN AAAA fd00:1::9
six.${S} 5 IN SRV 0 100 5432 a.east.six.${S}
a.east.six.${S} 5 IN AAAA fd00:1::9`,
  )
})

t.test('on the wire, and without a cluster whose lanes are down', async (t) => {
  const api = zone()
  const index = await syncedIndex(api)
  const pipeline = newPipeline(index)
  const wire = (name: string, type: number): string[] => {
    const reply = pipeline.answer(query(name, { type }), 'tcp', OWN_PROCESS)
    return Buffer.isBuffer(reply) ? decode(reply).answers.map(({ data }) => data) : ['nothing']
  }
  t.same(wire(`web.${S}`, TYPE.AAAA), ['fd53:ea1a:4e00:0:0:0:f500:1'])
  t.same(wire(`db.${S}`, TYPE.AAAA).sort(), ['fd00:1:0:0:0:0:0:5', 'fd00:1:0:0:0:0:0:6', 'fd00:2:0:0:0:0:0:5'])
  api.put(gateway([], ['east']))
  t.same(wire(`db.${S}`, TYPE.AAAA), ['fd00:2:0:0:0:0:0:5'])
  t.equal(text(index, `db.${S} A`), '; NODATA')
  t.equal(text(index, `db-0.east.db.${S} AAAA`), '; NXDOMAIN')
})
