/** The port on loopback that stands for a far end. */
import { Socket, createSocket } from 'node:dgram'
import { once } from 'node:events'
import t from 'tap'
import { openLoopbackPort } from '../../../runtime/datagrams/loopback-port.ts'
import { eventually } from '../../support/eventually.ts'

/** The device of a cable. */
async function openCable(port = 0): Promise<{ socket: Socket; port: number; seen: string[] }> {
  const socket = createSocket('udp4')
  const seen: string[] = []
  socket.on('message', (bytes) => seen.push(bytes.toString()))
  socket.bind({ address: '127.0.0.1', port })
  await once(socket, 'listening')
  return { socket, port: socket.address().port, seen }
}

t.test('it exchanges datagrams with the cable alone, and survives a cable that is away', async (t) => {
  const cable = await openCable()
  const stranger = await openCable()
  const seen: string[] = []
  const errors: Error[] = []
  const ready = Promise.withResolvers<undefined>()
  const far = openLoopbackPort({
    cable: cable.port,
    onReady: () => ready.resolve(undefined),
    onDatagram: (bytes) => seen.push(bytes.toString()),
    onError: (error) => errors.push(error),
  })
  t.equal(far.port, undefined)
  far.send(Buffer.from('too early'))
  await ready.promise
  far.send(Buffer.from('out'))
  await eventually(() => cable.seen.length > 0)
  stranger.socket.send('from a stranger', far.port)
  cable.socket.send('in', far.port)
  await eventually(() => seen.length > 0)
  t.same([seen, cable.seen], [['in'], ['out']])

  cable.socket.close()
  // The first one is answered by the kernel with an error, which the second one and the next read meet.
  for (const text of ['lost', 'lost too', 'lost as well']) far.send(Buffer.from(text))
  const again = await openCable(cable.port)
  await eventually(
    () => {
      far.send(Buffer.from('again'))
      return again.seen.length > 0
    },
    { say: 'datagrams get to the cable again' },
  )
  again.socket.send('and back', far.port)
  await eventually(() => seen.includes('and back'))
  t.same(errors, [])
  far.close()
  far.close()
  far.send(Buffer.from('too late'))
  for (const { socket } of [again, stranger]) socket.close()
})

t.test('it may be closed at once', async (t) => {
  const cable = await openCable()
  const far = openLoopbackPort({
    cable: cable.port,
    onReady: () => t.fail('ready'),
    onDatagram: () => undefined,
    onError: (error) => t.fail(error.message),
  })
  far.close()
  cable.socket.close()
  await once(cable.socket, 'close')
  t.equal(far.port, undefined)
})

t.test('a datagram that arrives before it is connected to the cable is of a stranger', async (t) => {
  const [cable, stranger] = [await openCable(), await openCable()]
  const seen: string[] = []
  const ready = Promise.withResolvers<undefined>()
  const connect = Reflect.get(Socket.prototype, 'connect') as (...args: readonly unknown[]) => void
  t.teardown(() => Reflect.set(Socket.prototype, 'connect', connect))
  Socket.prototype.connect = function (this: Socket, ...args: readonly unknown[]) {
    // Once it has been sent on loopback, it has arrived.
    stranger.socket.send('early', this.address().port, '127.0.0.1', () => {
      Reflect.apply(connect, this, args)
    })
  }
  const far = openLoopbackPort({
    cable: cable.port,
    onReady: () => ready.resolve(undefined),
    onDatagram: (bytes) => seen.push(bytes.toString()),
    onError: (error) => t.fail(error.message),
  })
  await ready.promise
  cable.socket.send('in', far.port)
  await eventually(() => seen.includes('in'))
  t.same(seen, ['in'])
  far.close()
  for (const { socket } of [cable, stranger]) socket.close()
})
