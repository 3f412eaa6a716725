/** The port on loopback that stands for a far end. */
import { type Socket, createSocket } from 'node:dgram'
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
