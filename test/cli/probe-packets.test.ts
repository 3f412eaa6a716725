/** What one machine does for `sealane explain --probe`: the packets that it sends, and the tasks and reports that it takes. */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import fc from 'fast-check'
import t from 'tap'
import { parseProbeReport, parseProbeTask } from '../../cli/status/path/probe-machine.ts'
import { type SendInit, sendProbe } from '../../cli/status/path/send-probe.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { UserError } from '../../runtime/errors.ts'
import { freePort } from '../support/free-port.ts'

const HOST = '127.0.0.1'

async function sent(init: Pick<SendInit, 'protocol' | 'port'> & Partial<SendInit>) {
  const sourcePort = await freePort()
  const never = new AbortController().signal
  return sendProbe({ family: 4, to: HOST, sourcePort, waitMs: 300, ...init }, new SystemClock(), never)
}

t.test('TCP: a server, none, and an address that is not of this machine', async (t) => {
  const ends: string[] = []
  const server = createServer((socket) => {
    socket
      .on('error', (error: NodeJS.ErrnoException) => ends.push(error.code ?? ''))
      .on('data', () => ends.push('data'))
    socket.resume()
  }).listen(0, HOST)
  await once(server, 'listening')
  t.teardown(() => void server.close())
  const { port } = server.address() as AddressInfo
  t.match(await sent({ protocol: 'tcp', port }), { result: 'answered', source: HOST, ms: Number })
  t.notOk(ends.includes('data'), 'it sends no data')
  t.match(await sent({ protocol: 'tcp', port: await freePort() }), { result: 'refused' })
  t.match(await sent({ protocol: 'tcp', port, source: '192.0.2.1' }), { result: 'failed', message: /EADDRNOTAVAIL/ })
})

t.test('UDP: a server, a silent one, and none', async (t) => {
  const counts = { answering: 0, silent: 0 }
  const open = async (name: keyof typeof counts): Promise<number> => {
    const socket = createSocket('udp4')
    socket.on('message', (_, { port, address }) => {
      counts[name] += 1
      if (name === 'answering') socket.send('x', port, address)
    })
    socket.bind(0, HOST)
    await once(socket, 'listening')
    t.teardown(() => void socket.close())
    return socket.address().port
  }
  t.match(await sent({ protocol: 'udp', port: await open('answering') }), { result: 'answered', source: HOST })
  t.match(await sent({ protocol: 'udp', port: await open('silent') }), { result: 'silent', message: /within 0.3 s/ })
  t.ok(counts.silent >= 2 && counts.silent <= 10, `${counts.silent} datagrams`)
  t.match(await sent({ protocol: 'udp', port: await freePort() }), { result: 'refused' })
})

t.test('UDP: an address that the kernel sends nothing to', async (t) => {
  // The kernel refuses the call of a broadcast address, as it does where it has no route.
  t.match(await sent({ protocol: 'udp', port: 9, to: '255.255.255.255' }), { result: 'failed', message: /EACCES/ })
  t.match(await sent({ protocol: 'udp', port: 9, to: '192.0.2.1', source: HOST }), {
    result: 'failed',
    message: /EINVAL/,
  })
})

t.test('an interrupt ends it', async (t) => {
  const stop = new AbortController()
  const port = await freePort()
  const init = { protocol: 'udp', family: 4, to: HOST, port, sourcePort: await freePort(), waitMs: 60_000 } as const
  stop.abort(new Error('stopped'))
  await t.rejects(sendProbe(init, new SystemClock(), stop.signal), { message: 'stopped' })
})

const TASK = {
  ...{ family: 4, protocol: 'tcp', sourcePort: 21_000, sources: [], destinations: ['10.0.0.1'] },
  ...{ ports: [80], seconds: 5, send: { to: '10.0.0.1', port: 80 } },
} as const
const REPORT = { at: '2026-11-25T10:00:00Z', lines: [], leftOut: 0, counters: [] }

t.test('tasks and reports', async (t) => {
  t.strictSame(parseProbeTask(JSON.stringify(TASK)), TASK)
  t.strictSame(parseProbeReport(JSON.stringify(REPORT)), REPORT)
  const line = { id: '1', family: 'ip', table: 't', chain: 'c', what: 'rule', rule: 'x' }
  const tasks = [
    { ...TASK, destinations: ['10.0.0.1; flush ruleset'] },
    { ...TASK, destinations: [] },
    { ...TASK, seconds: 3600 },
    { ...TASK, sourcePort: 0 },
    { ...TASK, protocol: 'icmp' },
    { ...TASK, sources: Array.from({ length: 17 }, (_, i) => `10.0.1.${i}`) },
    { ...TASK, send: { to: 'example.com', port: 80 } },
  ]
  for (const task of tasks) t.throws(() => parseProbeTask(JSON.stringify(task)), UserError, JSON.stringify(task))
  const reports = [
    { ...REPORT, lines: Array.from({ length: 2001 }, () => line) },
    { ...REPORT, lines: [{ ...line, rule: 'x'.repeat(401) }] },
    { ...REPORT, counters: [{ name: 'a', before: -1, after: 0 }] },
    { ...REPORT, sent: { result: 'won', message: '' } },
  ]
  for (const report of reports) t.throws(() => parseProbeReport(JSON.stringify(report)), UserError)
})

t.test('any text is refused in one way', async (t) => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
      for (const parse of [parseProbeTask, parseProbeReport]) {
        try {
          parse(text)
          throw new Error(`${text} was taken`)
        } catch (error) {
          if (!(error instanceof UserError)) throw error
        }
      }
    }),
  )
  t.pass()
})
