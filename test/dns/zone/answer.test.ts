import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { answer } from '../../../dns/zone/answer.ts'
import type { ServiceIndex } from '../../../dns/zone/service-index.ts'
import { formatAnswer, formatRecord, printZone } from '../../../dns/zone/zone-text.ts'
import { parseDnsName } from '../../../model/dns-name.ts'
import { syncedIndex, workedExamples } from '../zone-fixture.ts'
import { TYPE_A, TYPE_AAAA, TYPE_ANY, TYPE_NS, TYPE_SOA, TYPE_SRV, TYPE_TXT } from '../../../dns/message/wire.ts'

const TYPES = {
  A: TYPE_A,
  AAAA: TYPE_AAAA,
  SRV: TYPE_SRV,
  TXT: TYPE_TXT,
  NS: TYPE_NS,
  SOA: TYPE_SOA,
  ANY: TYPE_ANY,
  MX: 15,
}
const Z = 'clusterset.local.'
const S = `shop.svc.${Z}`

function ask(index: ServiceIndex, question: string, rotation = 0): string {
  const [text = '', type = ''] = question.split(' ')
  const name = parseDnsName(text)
  if (name.kind === 'malformed' || name.kind === 'notOurs') throw new Error(`${text} is ${name.kind}`)
  const result = answer(index, { name, type: TYPES[type as keyof typeof TYPES] }, rotation)
  // The SOA of a negative answer is always the same, and another test checks it.
  return formatAnswer(result)
    .split('\n')
    .filter((line) => result.kind === 'answer' || line.startsWith(';'))
    .join('\n')
}

t.test('worked examples of the specification', async (t) => {
  const index = await syncedIndex(workedExamples())
  const rows: [string, string][] = [
    [`web.${S} A`, `web.${S} 5 IN A 243.0.0.7`],
    [`web.${S} AAAA`, '; NODATA'],
    [`_https._tcp.web.${S} SRV`, `_https._tcp.web.${S} 5 IN SRV 0 100 443 web.${S}`],
    [`web.${S} SRV`, `web.${S} 5 IN SRV 0 50 80 web.${S}\nweb.${S} 5 IN SRV 0 50 443 web.${S}`],
    [`east.web.${S} A`, '; NXDOMAIN'],
    [`db.${S} A`, `db.${S} 5 IN A 10.1.0.5\ndb.${S} 5 IN A 10.1.0.6\ndb.${S} 5 IN A 10.2.0.9`],
    [`db-0.east.db.${S} A`, `db-0.east.db.${S} 5 IN A 10.1.0.5`],
    [`db-0.west.db.${S} A`, `db-0.west.db.${S} 5 IN A 10.2.0.9`],
    [`db-1.west.db.${S} A`, '; NXDOMAIN'],
    [
      `_pg._tcp.db.${S} SRV`,
      `_pg._tcp.db.${S} 5 IN SRV 0 33 5432 db-0.east.db.${S}
_pg._tcp.db.${S} 5 IN SRV 0 33 5432 db-1.east.db.${S}
_pg._tcp.db.${S} 5 IN SRV 0 33 5432 db-0.west.db.${S}`,
    ],
    [`raw.${S} A`, `raw.${S} 5 IN A 10.1.0.8`],
    [`10-1-0-8.east.raw.${S} A`, `10-1-0-8.east.raw.${S} 5 IN A 10.1.0.8`],
    [`_http._tcp.raw.${S} SRV`, '; NXDOMAIN'],
    [`dns-version.${Z} TXT`, `dns-version.${Z} 5 IN TXT "1.0.0"`],
  ]
  for (const [question, want] of rows) t.equal(ask(index, question), want, question)
  t.same(parseDnsName('web.shop.svc.cluster.local.'), { kind: 'notOurs' }, 'cluster.local is left alone')
})

t.test('every record form and every way of having no answer', async (t) => {
  const index = await syncedIndex(workedExamples())
  const rows: [string, string, string][] = [
    ['D2 two families', `both.${S} A`, `both.${S} 5 IN A 243.0.0.8`],
    ['D2 two families', `both.${S} AAAA`, `both.${S} 5 IN AAAA fd00:ffff::8`],
    ['D3 over UDP', `_dns._udp.both.${S} SRV`, `_dns._udp.both.${S} 5 IN SRV 0 100 53 both.${S}`],
    ['D4 two families', `dual.${S} AAAA`, `dual.${S} 5 IN AAAA fd00:1::20`],
    ['D5 two families', `d.east.dual.${S} AAAA`, `d.east.dual.${S} 5 IN AAAA fd00:1::20`],
    ['two ports of one number are one SRV', `dual.${S} SRV`, `dual.${S} 5 IN SRV 0 100 5432 d.east.dual.${S}`],
    [
      'each port has its own name',
      `_metrics._tcp.dual.${S} SRV`,
      `_metrics._tcp.dual.${S} 5 IN SRV 0 100 5432 d.east.dual.${S}`,
    ],
    ['a port no slice has', `_gone._tcp.dual.${S} SRV`, '; NXDOMAIN'],
    ['letter case', `WEB.Shop.SVC.ClusterSet.Local. A`, `web.${S} 5 IN A 243.0.0.7`],
    ['ANY gives one set', `web.${S} ANY`, `web.${S} 5 IN A 243.0.0.7`],
    ['apex SOA', `${Z} SOA`, `${Z} 5 IN SOA ns.${Z} hostmaster.${Z} ${index.serial} 7200 1800 86400 5`],
    ['apex NS', `${Z} NS`, `${Z} 5 IN NS ns.${Z}`],
    ['name server', `ns.${Z} A`, `ns.${Z} 5 IN A 10.2.0.53`],
    ['no ready endpoint', `idle.${S} A`, '; NXDOMAIN'],
    ['no ready endpoint, SRV', `_pg._tcp.idle.${S} SRV`, '; NXDOMAIN'],
    ['no address yet', `pending.${S} A`, '; NODATA'],
    ['unknown service', `nope.${S} A`, '; NXDOMAIN'],
    ['unknown namespace', `web.nope.svc.${Z} A`, '; NXDOMAIN'],
    ['empty non-terminal: apex', `${Z} A`, '; NODATA'],
    ['empty non-terminal: svc', `svc.${Z} A`, '; NODATA'],
    ['empty non-terminal: namespace', `${S} A`, '; NODATA'],
    ['a namespace without services', `nope.svc.${Z} A`, '; NXDOMAIN'],
    ['empty non-terminal: protocol', `_tcp.web.${S} SRV`, '; NODATA'],
    ['protocol that no port has', `_udp.web.${S} SRV`, '; NXDOMAIN'],
    ['reserved name with names below', `east.db.${S} A`, '; NODATA'],
    ['reserved name with names below, SRV', `east.db.${S} SRV`, '; NODATA'],
    ['reserved name, cluster without endpoints', `south.db.${S} A`, '; NXDOMAIN'],
    ['port name, other type', `_https._tcp.web.${S} A`, '; NODATA'],
    ['port that does not exist', `_x._tcp.web.${S} SRV`, '; NXDOMAIN'],
    ['version, other type', `dns-version.${Z} A`, '; NODATA'],
    ['type that is never there', `web.${S} MX`, '; NODATA'],
    ['elsewhere in the zone', `foo.${Z} A`, '; NXDOMAIN'],
    ['too deep', `a.b.c.web.${S} A`, '; NXDOMAIN'],
  ]
  for (const [say, question, want] of rows) t.equal(ask(index, question), want, `${say}: ${question}`)
})

t.test('negative answers carry the SOA, with a minimum of 5 seconds', async (t) => {
  const index = await syncedIndex(workedExamples())
  const result = answer(index, { name: { kind: 'unknown' }, type: TYPE_A }, 0)
  t.equal(formatAnswer(result), `; NXDOMAIN\n${Z} 5 IN SOA ns.${Z} hostmaster.${Z} ${index.serial} 7200 1800 86400 5`)
})

t.test('before the first sync: SERVFAIL, also for names that cannot be', async (t) => {
  const api = workedExamples({ hold: true })
  const { ServiceIndex } = await import('../../../dns/zone/service-index.ts')
  const index = new ServiceIndex({ clusterId: 'west', nameServers: { a: [], aaaa: [] }, serial: 1 })
  index.follow(api)
  t.equal(ask(index, `web.${S} A`), '; SERVFAIL')
  t.equal(ask(index, `nope.${S} A`), '; SERVFAIL')
  t.equal(printZone(index, index.services()), '; SERVFAIL')
})

t.test('SRV targets come with their addresses', async (t) => {
  const index = await syncedIndex(workedExamples())
  const name = parseDnsName(`_pg._tcp.db.${S}`)
  if (name.kind !== 'port') throw new Error('not a port')
  const result = answer(index, { name, type: TYPE_SRV }, 0)
  t.same(result.kind === 'answer' && result.additional.map(formatRecord), [
    `db-0.east.db.${S} 5 IN A 10.1.0.5`,
    `db-1.east.db.${S} 5 IN A 10.1.0.6`,
    `db-0.west.db.${S} 5 IN A 10.2.0.9`,
  ])
})

t.test('rotation turns the order and loses nothing', async (t) => {
  const index = await syncedIndex(workedExamples())
  t.equal(ask(index, `db.${S} A`, 1), `db.${S} 5 IN A 10.1.0.6\ndb.${S} 5 IN A 10.2.0.9\ndb.${S} 5 IN A 10.1.0.5`)
  fc.assert(
    fc.property(fc.integer(), (rotation) => {
      assert.deepEqual(ask(index, `db.${S} A`, rotation).split('\n').sort(), ask(index, `db.${S} A`).split('\n').sort())
    }),
  )
})

t.test('the whole zone prints', async (t) => {
  const index = await syncedIndex(workedExamples())
  const lines = printZone(index, index.services()).split('\n')
  t.equal(lines[0], `both.${S} 5 IN A 243.0.0.8`)
  t.ok(lines.includes(`db-0.west.db.${S} 5 IN A 10.2.0.9`))
})
