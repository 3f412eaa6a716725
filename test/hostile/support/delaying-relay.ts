/**
 * A program that delays traffic between two gateways. Each gateway calls the other at an address of this machine, and
 * the relay forwards each packet after a delay, in order. Arguments: the delay of one way in milliseconds, then `<own>
 * <of the gateway>` for either side, each as address:port. Prints `ready` when it listens.
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
