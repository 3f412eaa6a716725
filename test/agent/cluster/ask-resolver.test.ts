/** Which server answers for the zone, as a resolver shows it: Sealane's own server, another one, or none. */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { askResolver } from '../../../agent/cluster/ask-resolver.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { startDns } from '../../dns/dns-server.ts'
import { nameBytes, uint16s } from '../../dns/wire.ts'

const signal = new AbortController().signal

/** Starts a server that answers every question with the result of `answer`; undefined stands for no answer. */
async function server(t: Test, answer: (question: Buffer) => Buffer | undefined): Promise<string> {
  const socket = createSocket('udp4').bind(0, '127.0.0.1')
  await once(socket, 'listening')
  t.teardown(() => socket.close())
  socket.on('message', (bytes, { port, address }) => {
    const said = answer(bytes)
    if (said !== undefined) socket.send(said, port, address)
  })
  return `127.0.0.1:${socket.address().port}`
}

function withCode(question: Buffer, code: number, answers: readonly Buffer[] = []): Buffer {
  const whole = Buffer.concat([question, ...answers])
  whole.writeUInt16BE(0x8180 | code, 2)
  whole.writeUInt16BE(answers.length, 6)
  return whole
}

function soaOf(primary: string): Buffer {
  const data = Buffer.concat([nameBytes(primary), nameBytes('admin.example'), Buffer.alloc(20)])
  return Buffer.concat([uint16s(0xc00c, 6, 1, 0, 5, data.length), data])
}

t.test('our own server, through which a cluster DNS would forward', async (t) => {
  const { port } = await startDns(t, new MemoryApi())
  t.strictSame(await askResolver([`127.0.0.1:${port}`])(signal), { answers: true })
})

t.test('others', async (t) => {
  const rows: readonly (readonly [answer: (question: Buffer) => Buffer | undefined, said: string])[] = [
    [(question) => withCode(question, 3), 'NXDOMAIN'],
    [(question) => withCode(question, 2), 'SERVFAIL'],
    [(question) => withCode(question, 5), 'REFUSED'],
    [(question) => withCode(question, 0), 'NODATA'],
    [(question) => withCode(question, 0, [soaOf('ns.other.example')]), 'ns.other.example as name server'],
    [() => undefined, 'no answer in time'],
  ]
  for (const [answer, said] of rows) {
    t.strictSame(await askResolver([await server(t, answer)])(signal), { answers: false, said }, said)
  }
})

t.test('who stops asking has an answer at once', async (t) => {
  const stop = new AbortController()
  const silent = await server(t, () => (stop.abort(), undefined))
  const asked = askResolver([silent])(stop.signal)
  t.match(await asked, { answers: false, said: /cancel/i })
})
