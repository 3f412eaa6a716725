/**
 * The least that a fan-out costs: a TLS server that writes all it receives to all its connections, the sender's too.
 */
import { type TLSSocket, createServer } from 'node:tls'

const { key, cert } = JSON.parse(process.argv[2] ?? '') as { readonly key: string; readonly cert: string }
const sockets = new Set<TLSSocket>()
const server = createServer({ key, cert, minVersion: 'TLSv1.3', noDelay: true }, (socket) => {
  sockets.add(socket)
  socket.on('data', (bytes: Buffer) => {
    for (const one of sockets) one.write(bytes)
  })
  socket.on('error', () => undefined)
  socket.once('close', () => sockets.delete(socket))
})
server.listen(0, '127.0.0.1', () => process.send?.((server.address() as { readonly port: number }).port))
process.once('disconnect', () => process.exit(0))
