/**
 * A long way between two gateways, run as a program between them: each calls the other at an address of this machine,
 * and what comes there goes on after a while, in order. Arguments: milliseconds of one way, then `<own> <of the
 * gateway>` of the one side and of the other, each address:port. Prints `ready` when it listens.
 */
import { type Socket, createSocket } from 'node:dgram'
import { once } from 'node:events'

const [delay = '', ...places] = process.argv.slice(2)
const [own1 = '', gateway1 = '', own2 = '', gateway2 = ''] = places

const left = await listen(own1)
const right = await listen(own2)
carry(left, right, gateway2)
carry(right, left, gateway1)
console.log('ready')

async function listen(place: string): Promise<Socket> {
  const [address = '', port = ''] = place.split(':')
  const socket = createSocket({ type: 'udp4', recvBufferSize: 1 << 20 }).bind(Number(port), address)
  await once(socket, 'listening')
  return socket
}

function carry(from: Socket, to: Socket, place: string): void {
  const [address = '', port = ''] = place.split(':')
  from.on('message', (bytes) => {
    setTimeout(() => to.send(bytes, Number(port), address, () => undefined), Number(delay))
  })
}
