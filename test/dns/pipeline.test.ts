import t from 'tap'
import { OWN_PROCESS } from '../../dns/clients/clients.ts'
import { DISCARDING, dnsMetrics } from '../../dns/config/metrics.ts'
import { sampled } from '../../dns/server/listener.ts'
import { warmUp } from '../../dns/server/warm-up.ts'
import { answer } from '../../dns/zone/answer.ts'
import { KeptAnswers } from '../../dns/zone/kept-answers.ts'
import type { ServiceIndex } from '../../dns/zone/service-index.ts'
import type { Pipeline, PipelineDeps } from '../../dns/server/pipeline.ts'
import type { Transport } from '../../dns/message/wire.ts'
import { parseDnsName } from '../../model/dns-name.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { MOST_GROWTH, growth, processorMs } from '../support/growth.ts'
import { SILENT_UPSTREAMS, answerAtOnce, newPipeline } from './pipeline-fixture.ts'
import { type QueryInit, TYPE, type WireMessage, decode, query, uint16s } from './wire.ts'
import { clusterSetIp, headless, slice, syncedIndex, workedExamples } from './zone-fixture.ts'

const Z = 'clusterset.local.'
const S = `shop.svc.${Z}`

function ask(pipeline: Pipeline, bytes: Buffer, transport: Transport = 'udp'): WireMessage {
  return decode(answerAtOnce(pipeline, bytes, transport))
}

function data(message: WireMessage): string[] {
  return message.answers.map((record) => record.data)
}

t.test('answers as bytes', async (t) => {
  const index = await syncedIndex(workedExamples())
  const pipeline = newPipeline(index)
  const soa = `ns.${Z} hostmaster.${Z} ${index.serial} 7200 1800 86400 5`
  const rows: [string, number, string, string[]][] = [
    [`web.${S}`, TYPE.A, 'qr aa rd NOERROR', ['243.0.0.7']],
    [`web.${S}`, TYPE.AAAA, 'qr aa rd NOERROR', []],
    [`web.${S}`, TYPE.HTTPS, 'qr aa rd NOERROR', []],
    [`both.${S}`, TYPE.AAAA, 'qr aa rd NOERROR', ['fd00:ffff:0:0:0:0:0:8']],
    [`_https._tcp.web.${S}`, TYPE.SRV, 'qr aa rd NOERROR', [`0 100 443 web.${S}`]],
    [`db-0.west.db.${S}`, TYPE.A, 'qr aa rd NOERROR', ['10.2.0.9']],
    [`dns-version.${Z}`, TYPE.TXT, 'qr aa rd NOERROR', ['1.0.0']],
    [Z, TYPE.SOA, 'qr aa rd NOERROR', [soa]],
    [Z, TYPE.NS, 'qr aa rd NOERROR', [`ns.${Z}`]],
    [`nope.${S}`, TYPE.A, 'qr aa rd NXDOMAIN', []],
    [`web.${S}`, TYPE.AXFR, 'qr rd REFUSED', []],
    ['example.org.', TYPE.A, 'qr rd REFUSED', []],
    ['.', TYPE.NS, 'qr rd REFUSED', []],
  ]
  // The first answer is computed, and the second one comes from the kept answers.
  for (const round of ['first', 'kept']) {
    for (const [name, type, flags, want] of rows) {
      const got = ask(pipeline, query(name, { type }))
      t.same(
        { id: got.id, flags: got.flags, data: data(got) },
        { id: 0x1234, flags, data: want },
        `${round}: ${name} ${type}`,
      )
      if (got.rcode < 4 && want.length === 0)
        t.same(
          got.authorities.map((r) => `${r.name} ${r.data}`),
          [`${Z} ${soa}`],
        )
    }
  }
})

t.test('the letter case of the question comes back', async (t) => {
  const pipeline = newPipeline(await syncedIndex(workedExamples()))
  for (const name of [`WeB.sHoP.SVC.CLUSTERSET.local.`, `web.${S}`, `WEB.${S}`]) {
    const got = ask(pipeline, query(name))
    t.same([got.question, got.answers[0]?.name, data(got)], [name, name, ['243.0.0.7']])
  }
  t.equal(pipeline.kept, 1, 'and makes no second entry')
})

t.test('kept answers end with a change of their service', async (t) => {
  const api = workedExamples()
  const pipeline = newPipeline(await syncedIndex(api))
  const asked = (name: string): WireMessage => ask(pipeline, query(name))
  t.same(data(asked(`web.${S}`)), ['243.0.0.7'])
  t.equal(asked(`late.${S}`).rcode, 3)
  api.put(clusterSetIp('web', ['243.0.0.70'], []))
  api.put(clusterSetIp('late', ['243.0.0.71'], []))
  t.same(data(asked(`web.${S}`)), ['243.0.0.70'])
  t.same(data(asked(`late.${S}`)), ['243.0.0.71'], 'a name that was not there is not kept')
  api.drop('ServiceImport', 'web', 'shop')
  t.equal(asked(`web.${S}`).rcode, 3)
})

t.test('address records turn round, as the pure answer does', async (t) => {
  const index = await syncedIndex(workedExamples())
  const pipeline = newPipeline(index)
  const seen = new Set<string>()
  for (let i = 0; i < 9; i += 1) seen.add(data(ask(pipeline, query(`db.${S}`))).join(' '))
  const name = parseDnsName(`db.${S}`)
  if (name.kind !== 'service') throw new Error('not a service')
  const want = [0, 1, 2].map((rotation) => {
    const result = answer(index, { name, type: TYPE.A }, rotation)
    return result.kind === 'answer' ? result.records.map((r) => ('address' in r ? r.address : '')).join(' ') : ''
  })
  t.same([...seen].sort(), want.sort())
})

t.test('EDNS', async (t) => {
  const pipeline = newPipeline(await syncedIndex(workedExamples()))
  const opt = (init: QueryInit): string => {
    const got = ask(pipeline, query(`web.${S}`, init))
    const record = got.additionals.find((r) => r.type === TYPE.OPT)
    return record === undefined
      ? `${got.flags}, none`
      : `${got.flags}, size ${record.class} ttl ${record.ttl.toString(16)}`
  }
  t.equal(opt({}), 'qr aa rd NOERROR, none')
  t.equal(opt({ edns: { size: 4096 } }), 'qr aa rd NOERROR, size 1232 ttl 0')
  t.equal(opt({ edns: { size: 100, dnssecOk: true } }), 'qr aa rd NOERROR, size 1232 ttl 8000')
  t.equal(
    opt({ edns: { size: 4096, options: uint16s(10, 8, 1, 2, 3, 4) } }),
    'qr aa rd NOERROR, size 1232 ttl 0',
    'cookie',
  )
  t.equal(opt({ edns: { size: 4096, version: 1 } }), 'qr rd NOERROR, size 1232 ttl 1000000', 'BADVERS')
})

t.test('what is too large for the client is cut, with TC; TCP gives all', async (t) => {
  const api = workedExamples()
  const port = { name: 'p', protocol: 'TCP', port: 1 } as const
  const hosts = Array.from({ length: 300 }, (_, i) => ({ addresses: [`10.9.${i >> 8}.${i & 255}`] }))
  api.put(headless('big', [port]))
  api.put(slice('big', 'east', hosts, [port]))
  const pipeline = newPipeline(await syncedIndex(api))
  const size = (type: number, init: QueryInit, transport: Transport): [number, string, number] => {
    const reply = answerAtOnce(pipeline, query(`big.${S}`, { ...init, type }), transport)
    const got = decode(reply)
    return [reply.length, got.flags, got.answers.length]
  }
  for (const type of [TYPE.A, TYPE.SRV]) {
    const [small, smallFlags, fewer] = size(type, {}, 'udp')
    t.equal(smallFlags, 'qr aa tc rd NOERROR')
    t.ok(small <= 512 && fewer > 0, `${small} octets, ${fewer} records`)
    const [large, largeFlags, more] = size(type, { edns: { size: 65_535 } }, 'udp')
    t.equal(largeFlags, 'qr aa tc rd NOERROR')
    t.ok(large <= 1232 && more > fewer, `${large} octets, ${more} records`)
    const [, allFlags, all] = size(type, {}, 'tcp')
    t.same([allFlags, all], ['qr aa rd NOERROR', 300])
  }
})

t.test('the largest service still fits in a TCP message', async (t) => {
  const ports = Array.from({ length: 5 }, (_, i) => ({ name: `p${i}`, protocol: 'TCP', port: i + 1 }) as const)
  const withHosts = (count: number): Promise<ServiceIndex> => {
    const api = workedExamples()
    const hosts = Array.from({ length: count }, (_, i) => ({ addresses: [`10.9.${i >> 8}.${i & 255}`] }))
    api.put(headless('huge', ports))
    api.put(slice('huge', 'east', hosts, ports))
    return syncedIndex(api)
  }
  const asked = query(`huge.${S}`, { type: TYPE.SRV, edns: { size: 1232 } })
  const pipeline = newPipeline(await withHosts(2000))
  const reply = answerAtOnce(pipeline, asked, 'tcp')
  const times = await growth(8000, async (size) => {
    const index = await withHosts(size)
    return processorMs(() => answerAtOnce(newPipeline(index), asked, 'tcp'))
  })
  t.ok(times < MOST_GROWTH, `four times as many hosts take ${times.toFixed(1)} times as long`)
  t.ok(reply.length <= 65_535)
  const cut = ask(pipeline, query(`huge.${S}`, { type: TYPE.SRV }), 'tcp')
  t.equal(cut.flags, 'qr aa tc rd NOERROR', 'what no answer has room for is told as cut, over TCP too')
  t.ok(cut.answers.length > 100, `${cut.answers.length} records all the same`)
  const whole = ask(pipeline, query(`huge.${S}`), 'tcp')
  t.same([whole.flags, whole.answers.length], ['qr aa rd NOERROR', 1000])
})

const withOptions = (options: Buffer): Buffer => query(`web.${S}`, { edns: { size: 1232, options } })

/** Appends a TSIG record with arbitrary content (RFC 8945 section 4.2). */
function signed(bare: Buffer): Buffer {
  const record = Buffer.concat([Buffer.from([1, 0x6b, 0]), uint16s(250, 255, 0, 0, 4, 1, 2)])
  const whole = Buffer.concat([bare, record])
  whole.writeUInt16BE(1, 10)
  return whole
}

t.test('queries that are not in order', async (t) => {
  const pipeline = newPipeline(await syncedIndex(workedExamples()), { forwarder: SILENT_UPSTREAMS })
  const good = query(`web.${S}`)
  const edit = (change: (bytes: Buffer) => void): Buffer => {
    const bytes = Buffer.from(good)
    change(bytes)
    return bytes
  }
  const rows: [string, Buffer, string][] = [
    ['an answer', edit((b) => b.writeUInt16BE(0x8180, 2)), 'ignored'],
    ['nothing', Buffer.alloc(0), 'ignored'],
    ['half a header', good.subarray(0, 11), 'ignored'],
    ['a header alone', good.subarray(0, 12), 'qr rd ra FORMERR'],
    ['no question', edit((b) => b.writeUInt16BE(0, 4)), 'qr rd ra FORMERR'],
    ['two questions', edit((b) => b.writeUInt16BE(2, 4)), 'qr rd ra FORMERR'],
    ['an answer record', edit((b) => b.writeUInt16BE(1, 6)), 'qr rd ra FORMERR'],
    ['records promised but missing', edit((b) => b.writeUInt16BE(1, 10)), 'qr rd ra FORMERR'],
    ['65,535 records promised', edit((b) => b.writeUInt16BE(65_535, 10)), 'qr rd ra FORMERR'],
    ['half a question', good.subarray(0, 20), 'qr rd ra FORMERR'],
    ['octets after the end', Buffer.concat([good, Buffer.from([0])]), 'qr rd ra FORMERR'],
    ['a compressed question', Buffer.concat([good.subarray(0, 12), uint16s(0xc00c, 1, 1)]), 'qr rd ra FORMERR'],
    ['a question about OPT', query(`web.${S}`, { type: TYPE.OPT }), 'qr rd ra FORMERR'],
    ['opcode 4', edit((b) => b.writeUInt16BE(0x2100, 2)), 'qr NOTIMP'],
    ['opcode 4, every flag set', edit((b) => b.writeUInt16BE(0x27ff, 2)), 'qr NOTIMP'],
    ['an option longer than its record', withOptions(uint16s(10, 9, 1, 2, 3, 4)), 'qr rd ra FORMERR'],
    ['half an option', withOptions(uint16s(10)), 'qr rd ra FORMERR'],
    ['an option, then one octet', withOptions(Buffer.concat([uint16s(10, 0), Buffer.from([0])])), 'qr rd ra FORMERR'],
    ['a signature', signed(good), 'qr rd ra FORMERR'],
    ['a signature on a name that is not ours', signed(query('example.org.')), 'qr rd ra FORMERR'],
    ['class CH', query('version.bind.', { type: TYPE.TXT, class: 3 }), 'qr rd ra REFUSED'],
    ['outside the zone', query('example.org.'), 'forwarded'],
    ['outside the zone, no recursion wanted', query('example.org.', { recursionDesired: false }), 'qr ra REFUSED'],
    ['reverse names', query('7.0.42.10.in-addr.arpa.', { type: TYPE.PTR }), 'forwarded'],
    ['search list', query(`hello.ns.svc.${Z}ns.svc.cluster.local.`), 'qr rd ra NXDOMAIN'],
    ['search list, any letter case', query('web.shop.svc.ClusterSet.LOCAL.cluster.local.'), 'qr rd ra NXDOMAIN'],
    ['a name that only starts alike', query('web.clusterset.localhost.'), 'forwarded'],
  ]
  for (const [say, bytes, want] of rows) {
    const reply = pipeline.answer(bytes, 'udp', OWN_PROCESS)
    const got = reply === undefined ? 'ignored' : Buffer.isBuffer(reply) ? decode(reply).flags : 'forwarded'
    t.equal(got, want, say)
  }
})

t.test('without upstreams other names are REFUSED, but names of ours with a search domain are NXDOMAIN', async (t) => {
  const pipeline = newPipeline(await syncedIndex(workedExamples()))
  t.equal(ask(pipeline, query('example.org.')).flags, 'qr rd REFUSED')
  t.equal(ask(pipeline, query(`web.${S}shop.svc.cluster.local.`)).flags, 'qr rd NXDOMAIN')
})

t.test('before the first sync: SERVFAIL', async (t) => {
  const api = workedExamples({ hold: true })
  const { ServiceIndex } = await import('../../dns/zone/service-index.ts')
  const index = new ServiceIndex({ clusterId: 'west', nameServers: { a: [], aaaa: [] }, serial: 1 })
  index.follow(api)
  const pipeline = newPipeline(index)
  t.equal(ask(pipeline, query(`web.${S}`)).flags, 'qr rd SERVFAIL')
  api.release()
  await Promise.resolve()
  api.release()
  t.same(data(ask(pipeline, query(`web.${S}`))), ['243.0.0.7'], 'nothing of it is kept')
})

t.test('a fault of ours is logged, and the client hears SERVFAIL', async (t) => {
  const index = await syncedIndex(workedExamples())
  const logger = new CapturingLogger()
  const pipeline = newPipeline(index, { logger })
  index.mayHave = () => {
    throw new Error('a fault')
  }
  t.equal(ask(pipeline, query(`web.${S}`)).flags, 'qr rd SERVFAIL')
  t.same(logger.messages('error'), ['cannot answer a query'])
  t.equal(ask(pipeline, query('example.org.')).flags, 'qr rd REFUSED', 'others are answered')
})

t.test('what is rehearsed is kept, and not counted', async (t) => {
  const index = await syncedIndex(workedExamples())
  const counted: string[] = []
  const metrics: PipelineDeps['metrics'] = {
    answered: (type, rcode) => counted.push(`type ${type} code ${rcode}`),
    dropped: (reason) => counted.push(reason),
    cut: () => counted.push('cut'),
    forwarded: (result) => counted.push(result),
  }
  const kept = new KeptAnswers(index)
  const pipeline = newPipeline(index, { kept, metrics })
  const rehearsal = newPipeline(index, { kept, metrics: dnsMetrics(DISCARDING) })
  const services = [{ namespace: 'shop', name: 'web' }]
  const { signal } = new AbortController()
  const asked = await warmUp({ clock: new SystemClock(), pipeline: rehearsal, services, mostMs: 20 }, signal)
  t.ok(asked > 0)
  t.same([kept.size, counted], [1, []])
  ask(pipeline, query(`web.${S}`))
  t.same([kept.size, counted], [1, ['type 1 code 0']], 'and found by the pipeline that counts')
})

t.test('one packet in 64 is timed', async (t) => {
  const took: number[] = []
  const clock = new FakeClock()
  const pipeline = newPipeline(await syncedIndex(workedExamples()))
  const timed = sampled({ clock, pipeline, metrics: { took: (seconds) => took.push(seconds) } })
  for (let i = 0; i < 128; i += 1) {
    const bytes = query(`web.${S}`)
    t.same(timed.answer(bytes, 'udp', OWN_PROCESS), answerAtOnce(pipeline, bytes))
  }
  t.same(took, [0, 0])
})
