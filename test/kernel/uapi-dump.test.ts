import { getEventListeners } from 'node:events'
import { type Socket, createServer } from 'node:net'
import { join } from 'node:path'
import { inspect } from 'node:util'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { KernelError } from '../../kernel/errors.ts'
import { parseUapi, readByUapi } from '../../kernel/wireguard/wireguard-go.ts'
import { publicKeyOf } from '../../kernel/wireguard/wireguard-device.ts'
import { parseAddressPort } from '../../model/addresses/address-port.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const SECRET = '58'.repeat(32)
const [B, C] = ['04'.repeat(32), '08'.repeat(32)]
const base64 = (hex: string): string => Buffer.from(hex, 'hex').toString('base64')

const ANSWER = `private_key=${SECRET}
listen_port=4500
fwmark=7310
public_key=${C}
preshared_key=${'00'.repeat(32)}
protocol_version=1
endpoint=[2001:db8::1%eth0]:4500
last_handshake_time_sec=0
last_handshake_time_nsec=0
tx_bytes=0
rx_bytes=0
persistent_keepalive_interval=0
public_key=${B}
protocol_version=1
last_handshake_time_sec=1795000000
last_handshake_time_nsec=7
tx_bytes=20
rx_bytes=10
persistent_keepalive_interval=15
allowed_ip=fd42:1::/48
allowed_ip=246.0.0.2/32
allowed_ip=244.1.0.0/16
something_new=1
errno=0

`

t.test('a device as its process tells it', (t) => {
  const state = parseUapi('sealane0', ANSWER)
  t.strictSame(state, {
    name: 'sealane0',
    publicKey: publicKeyOf(base64(SECRET)),
    listenPort: 4500,
    mark: 7310,
    peers: [
      {
        publicKey: base64(B),
        allowedIps: ['244.1.0.0/16', '246.0.0.2/32', 'fd42:1::/48'],
        keepaliveSeconds: 15,
        lastHandshakeMs: 1_795_000_000_000,
        rxBytes: 10,
        txBytes: 20,
      },
      {
        publicKey: base64(C),
        endpoint: parseAddressPort('[2001:db8::1]:4500'),
        allowedIps: [],
        keepaliveSeconds: 0,
        rxBytes: 0,
        txBytes: 0,
      },
    ],
  })
  const shown = inspect(state, { depth: null })
  for (const form of [SECRET, base64(SECRET)]) t.notMatch(shown, form, 'the private key stays behind')
  t.strictSame(parseUapi('sealane0', 'errno=0\n\n'), { name: 'sealane0', publicKey: '', listenPort: 0, peers: [] })
  t.strictSame(parseUapi('x', `private_key=${'0'.repeat(64)}\nlisten_port=7\nerrno=0\n\n`)?.publicKey, '', 'no key yet')
  for (const none of ['', '\n', 'errno=1\n\n', 'listen_port=4500\n\n']) t.equal(parseUapi('x', none), undefined)
  t.end()
})

t.test('what is not of the protocol is said so, without its content', (t) => {
  const line = fc.oneof(
    fc.string(),
    fc
      .tuple(
        fc.constantFrom('public_key', 'private_key', 'listen_port', 'endpoint', 'allowed_ip', 'rx_bytes', 'fwmark'),
        fc.string(),
      )
      .map((pair) => pair.join('=')),
    fc.constantFrom(...ANSWER.split('\n')),
  )
  fc.assert(
    fc.property(fc.array(line), (lines) => {
      try {
        parseUapi('x', [`private_key=${SECRET}`, ...lines, 'errno=0', ''].join('\n'))
        return true
      } catch (error) {
        return error instanceof KernelError && !inspect(error).includes(SECRET)
      }
    }),
  )
  t.end()
})

const clock = new SystemClock()

/** A process that answers as the test tells it; `ended` counts the connections that are closed. */
async function answering(
  t: Test,
  answer: (socket: Socket) => void,
): Promise<{ readonly path: string; readonly open: () => number; readonly taken: () => number }> {
  const path = join(temporaryFolder(t), 'x.sock')
  const sockets = new Set<Socket>()
  let taken = 0
  const server = createServer((socket) => {
    taken += 1
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket)).on('error', () => undefined)
    socket.on('data', () => answer(socket))
  })
  await new Promise<void>((resolve) => server.listen(path, resolve))
  t.teardown(() => new Promise((resolve) => server.close(resolve)))
  return { path, open: () => sockets.size, taken: () => taken }
}

t.test('who answers nothing, or half, is asked by the tool', async (t) => {
  const rows: [say: string, answer: string][] = [
    ['hangs up', ''],
    ['half an answer', ANSWER.slice(0, 200)],
    ['an error', 'errno=-5\n\n'],
  ]
  for (const [say, answer] of rows) {
    const { path } = await answering(t, (socket) => socket.end(answer))
    t.equal(await readByUapi('x', path, clock), undefined, say)
  }
  t.equal(await readByUapi('x', join(temporaryFolder(t), 'x.sock'), clock), undefined, 'nobody is there')
})

t.test('an answer in parts', async (t) => {
  const { path } = await answering(t, (socket) => {
    socket.write(ANSWER.slice(0, 100))
    setImmediate(() => socket.write(ANSWER.slice(100)))
  })
  t.strictSame(await readByUapi('x', path, clock), parseUapi('x', ANSWER))
})

t.test('who is slow, or says too much, is left', async (t) => {
  const slow = new FakeClock()
  const drips = await answering(t, (socket) => socket.write('x'))
  const asked = readByUapi('x', drips.path, slow)
  await eventually(() => drips.taken() === 1)
  slow.advance(2000)
  t.equal(await asked, undefined, 'in time counts for the whole')
  const floods = await answering(t, (socket) => socket.write(`${'x'.repeat(99)}\n`.repeat(100_000)))
  t.equal(await readByUapi('x', floods.path, slow), undefined, 'too much')
  await eventually(() => drips.open() + floods.open() === 0, { say: 'both are left' })
})

t.test('nothing stays with a signal', async (t) => {
  const { path, open, taken } = await answering(t, (socket) => socket.write(ANSWER))
  const silent = await answering(t, () => undefined)
  const stop = new AbortController()
  for (const place of [path, join(temporaryFolder(t), 'none.sock'), path])
    await readByUapi('x', place, clock, stop.signal)
  t.equal(getEventListeners(stop.signal, 'abort').length, 0, 'after an answer, and after none')
  const waits = readByUapi('x', silent.path, clock, stop.signal)
  await eventually(() => silent.open() === 1)
  stop.abort()
  t.equal(await waits, undefined, 'in the middle')
  t.equal(await readByUapi('x', path, clock, stop.signal), undefined, 'nobody waits any more')
  t.equal(getEventListeners(stop.signal, 'abort').length, 0)
  await eventually(() => open() + silent.open() === 0, { say: 'no connection stays' })
  t.equal(taken(), 2, 'an aborted one asks nobody')
})
