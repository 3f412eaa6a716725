/** An HTTP proxy with a password, as a program: `connect-proxy-program.ts ADDRESS USER:PASSWORD`, on port 3128. */
import { connect, createServer } from 'node:net'

const [address = '', login = ''] = process.argv.slice(2)
const wanted = `Basic ${Buffer.from(login).toString('base64')}`

createServer((socket) => {
  socket.on('error', () => socket.destroy())
  let head = ''
  const onData = (data: Buffer): void => {
    head += data.toString('latin1')
    if (!head.includes('\r\n\r\n')) return
    socket.off('data', onData)
    const [, host = '', port = ''] = /^CONNECT ([^:\s]+):(\d+) /.exec(head) ?? []
    if (!head.includes(wanted) || host === '') {
      socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n')
      return
    }
    process.stdout.write(`CONNECT ${host}:${port}\n`)
    const far = connect({ host, port: Number(port) }, () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n')
      socket.pipe(far).pipe(socket)
    })
    far.on('error', () => socket.destroy())
    far.once('close', () => socket.destroy())
    socket.once('close', () => far.destroy())
  }
  socket.on('data', onData)
}).listen(3128, address, () => process.stdout.write('proxy listens\n'))
