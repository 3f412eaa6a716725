/** Clients that ask the DNS server for names they may not read, or so often that other clients would get no answer. */
import { execFileSync } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer } from 'node:net'
import t, { type Test } from 'tap'
import type { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { askTcp, askUdp, startDns } from '../dns/dns-server.ts'
import { type WireMessage, decode, query, uint16s } from '../dns/wire.ts'
import { workedExamples } from '../dns/zone-fixture.ts'
import { eventually } from '../support/eventually.ts'
import { inPrivateNetns } from '../support/netns.ts'
import { clusterObject } from '../support/objects/cluster-objects.ts'
import { attack } from './support/attack.ts'

const OURS = query('web.shop.svc.clusterset.local.')
const ELSEWHERE = query('elsewhere.example.', { edns: { size: 1232 } })
/** A pod of east as west sees it, an address in no known network, and a pod of west. */
const FAR_POD = '244.1.0.5'
const UNKNOWN = '203.0.113.9'
const OWN_POD = '10.42.0.7'

/** The records take 60,000 octets. */
const RECORDS = 3750

const MARK = Buffer.from('mark')

interface Upstream {
  readonly address: string
  readonly asked: string[]
}

/**
 * An upstream that answers every question with this many records, or with NXDOMAIN if there are none; questions in the
 * zone silent.example get no answer.
 */
async function startUpstream(t: Test, records = 0): Promise<Upstream> {
  const asked: string[] = []
  const answerTo = (bytes: Buffer): Buffer => {
    const record = Buffer.concat([uint16s(0xc00c, 1, 1, 0, 60, 4), Buffer.from([192, 0, 2, 80])])
    const bare = bytes.subarray(0, 12 + decode(bytes).question.length + 1 + 4)
    const answer = Buffer.concat([bare, ...Array.from({ length: records }, () => record)])
    answer.writeUInt16BE(records > 0 ? 0x8180 : 0x8183, 2)
    answer.writeUInt16BE(records, 6)
    answer.writeUInt16BE(0, 10)
    return answer
  }
  const upstream = createSocket('udp4', (bytes, { port, address }) => {
    asked.push(decode(bytes).question)
    if (!decode(bytes).question.endsWith('silent.example.')) upstream.send(answerTo(bytes), port, address)
  }).bind(0, '127.0.0.1')
  await once(upstream, 'listening')
  const { port } = upstream.address()
  const server = createServer((socket) => {
    socket.on('error', () => undefined)
    socket.once('data', (bytes: Buffer) => {
      const answer = answerTo(bytes.subarray(2))
      socket.end(Buffer.concat([uint16s(answer.length), answer]))
    })
  }).listen(port, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    upstream.close()
    server.close()
  })
  return { address: `127.0.0.1:${port}`, asked }
}

/** West, whose pods are 10.42.0.0/16, and one other member, whose packets come from 244.1.0.0/16. */
function joined(): MemoryApi {
  const api = workedExamples()
  api.put(clusterObject({ id: 'west', index: 1, podCIDRs: ['10.42.0.0/16'] }))
  api.put(clusterObject({ id: 'east', index: 2, podCIDRs: ['10.42.0.0/16'], globalCIDRs: ['244.1.0.0/16'] }))
  return api
}

/** Sends many datagrams from one address and returns the answers that came at once. */
async function flood(port: number, from: string, questions: readonly Buffer[]): Promise<Buffer[]> {
  const socket = createSocket('udp4')
  const heard: Buffer[] = []
  let onMark = (): void => undefined
  socket.on('message', (message) => {
    if (message.equals(MARK)) onMark()
    else heard.push(message)
  })
  socket.bind({ address: from })
  await once(socket, 'listening')
  // The datagrams go in batches, so that no socket's queue overflows.
  for (let at = 0; at < questions.length; at += 100) {
    for (const bytes of questions.slice(at, at + 100)) socket.send(bytes, port, '127.0.0.1')
    await askUdp(port, OURS)
    // The answer to the mark arrives after all answers that have been sent by now.
    const marked = new Promise<void>((resolve) => (onMark = resolve))
    socket.send(MARK, socket.address().port, from)
    await marked
  }
  socket.close()
  return heard
}

await inPrivateNetns(t, import.meta.url, async () => {
  // This machine may use these addresses as source addresses, though none of its interfaces has them.
  for (const range of ['244.1.0.0/16', '10.42.0.0/16', '203.0.113.0/24', '198.51.100.0/24']) {
    execFileSync('ip', ['route', 'add', 'local', range, 'dev', 'lo'])
  }
  await attack('dns-recursion-from-lane', recursion)
  await attack('dns-silent-zone', silentZone)
  await attack('dns-large-upstream', largeUpstream)
  await attack('dns-reflection', reflection)
})

async function recursion(t: Test): Promise<void> {
  const upstream = await startUpstream(t)
  const init = { upstreams: [upstream.address], forwardFor: ['10.42.0.0/16', '198.51.100.0/24'] }
  const { port, metrics } = await startDns(t, joined(), init)
  for (const from of [FAR_POD, UNKNOWN]) {
    const refused = await askUdp(port, ELSEWHERE, 5000, from)
    t.equal(refused.flags, 'qr rd REFUSED', `${from}: no recursion is offered`)
    const why = Buffer.from(refused.additionals[0]?.data ?? '', 'hex')
    t.equal(why.readUInt16BE(0), 15, 'an extended error')
    t.equal(why.readUInt16BE(4), 18, 'Prohibited')
    t.equal(why.toString('latin1', 6), 'client_not_own')
    t.equal((await askUdp(port, OURS, 5000, from)).answers[0]?.data, '243.0.0.7', 'what is exported is told')
  }
  t.same(upstream.asked, [])
  for (const from of [OWN_POD, '198.51.100.7', '127.0.0.9']) {
    t.equal((await askUdp(port, ELSEWHERE, 5000, from)).flags, 'qr rd ra NXDOMAIN', `${from} is of this site`)
  }
  t.equal(upstream.asked.length, 3)
  t.match(await metrics.text(), 'sealane_dns_forwarded_total{result="client_not_own",component="dns"} 2')
}

async function silentZone(t: Test): Promise<void> {
  const upstream = await startUpstream(t)
  const { port, metrics } = await startDns(t, joined(), { upstreams: [upstream.address], forwardFor: ['10.42.0.0/16'] })
  const silent = Array.from({ length: 1200 }, (_, id) => query(`n${id}.silent.example.`, { id }))
  await flood(port, OWN_POD, silent)
  await eventually(() => upstream.asked.length > 200, { say: 'the flood has come to the upstream' })
  const names = Array.from({ length: 55 }, (_, id) => query(`n${id}.example.`, { id }))
  const answers = await Promise.all(names.map((bytes) => askUdp(port, bytes, 5000, '10.42.0.8')))
  t.equal(answers.filter(({ flags }) => flags === 'qr rd ra NXDOMAIN').length, 55)
  t.match(await metrics.text(), 'sealane_dns_forwarded_total{result="client_places"')
}

async function largeUpstream(t: Test): Promise<void> {
  const upstream = await startUpstream(t, RECORDS)
  const { port } = await startDns(t, joined(), { upstreams: [upstream.address], forwardFor: [] })
  const asked = query('large.example.', { edns: { size: 65_535 } })
  const socket = createSocket('udp4')
  socket.bind({ address: '127.0.0.1' })
  socket.send(asked, port, '127.0.0.1')
  const [answer] = (await once(socket, 'message', { signal: AbortSignal.timeout(5000) })) as [Buffer]
  socket.close()
  t.ok(answer.length <= 1232, `${answer.length} octets for ${asked.length}`)
  t.equal(decode(answer).flags, 'qr tc rd ra NOERROR')
  t.equal((await askTcp(port, [asked]))[0]?.answers.length, RECORDS, 'TCP carries all')
}

async function reflection(t: Test): Promise<void> {
  const { port, metrics } = await startDns(t, joined())
  const isCut = (bytes: Buffer): boolean => (bytes.readUInt16BE(2) & 0x0200) !== 0
  const kinds: readonly (readonly [string, readonly Buffer[]])[] = [
    [FAR_POD, Array.from({ length: 3000 }, () => OURS)],
    [UNKNOWN, Array.from({ length: 3000 }, (_, id) => query(`n${id}.shop.svc.clusterset.local.`, { id }))],
  ]
  for (const [from, questions] of kinds) {
    const started = performance.now()
    const heard = await flood(port, from, questions)
    const seconds = (performance.now() - started) / 1000
    const whole = heard.filter((bytes) => !isCut(bytes))
    t.ok(whole.length <= 100 + 100 * Math.ceil(seconds), `${whole.length} whole answers in ${seconds.toFixed(1)} s`)
    const held = questions.length - whole.length
    const cut = heard.filter(isCut)
    t.ok(Math.abs(cut.length - held / 2) <= 1, `${cut.length} of ${held} are cut`)
    const longest = Math.max(...questions.map(({ length }) => length))
    t.ok(
      cut.every(({ length }) => length <= longest),
      'and are no longer than their question',
    )
  }
  const own: WireMessage[] = []
  for (let i = 0; i < 500; i += 1) own.push(await askUdp(port, OURS))
  t.equal(own.filter(({ answers }) => answers.length === 1).length, 500, 'who is of this site is not limited')
  t.same(
    (
      await flood(
        port,
        '127.0.0.7',
        Array.from({ length: 3000 }, () => OURS),
      )
    ).length,
    3000,
  )
  t.match(await metrics.text(), /sealane_dns_dropped_total\{reason="response_rate",component="dns"\} \d+/)
  t.match(await metrics.text(), /sealane_dns_cut_answers_total\{component="dns"\} \d+/)
}
