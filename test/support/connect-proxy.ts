/**
 * A proxy for tests: CONNECT with or without TLS, or SOCKS5, with or without a password. Names are those of the test:
 * every server that is asked for is the port of that number on this machine.
 */
import { type AddressInfo, type Server, type Socket, connect, createServer } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import type { Test } from 'tap'

/** `garbage`: an answer of another protocol. `silent`: none. `endless`: one that never ends. Else a status line. */
export type ProxyFault = 'garbage' | 'silent' | 'endless' | 'close' | `HTTP/1.1 ${number} ${string}`

export interface ConnectProxyInit {
  readonly scheme?: 'http' | 'https' | 'socks5'
  /** Certificate and key for https. */
  readonly tls?: { readonly cert: string; readonly key: string }
  /** user:password */
  readonly login?: string
}

export interface ConnectProxy {
  readonly port: number
  /** The URL of the proxy, with the login. */
  readonly url: string
  /** The servers that were asked for, as host:port. */
  readonly asked: string[]
  fault: ProxyFault | undefined
}

export async function connectProxy(t: Pick<Test, 'teardown'>, init: ConnectProxyInit = {}): Promise<ConnectProxy> {
  const { scheme = 'http', tls, login } = init
  const sockets = new Set<Socket>()
  const proxy = { port: 0, url: '', asked: [] as string[], fault: undefined as ProxyFault | undefined }
  const onSocket = (socket: Socket): void => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.once('close', () => sockets.delete(socket))
    if (fails(socket, proxy.fault)) return
    void (scheme === 'socks5' ? serveSocks : serveConnect)(socket, {
      login,
      join: (target, rest) => {
        proxy.asked.push(target)
        const port = Number(/:(\d+)$/.exec(target)?.[1] ?? 0)
        const far = connect({ host: '127.0.0.1', port })
        sockets.add(far)
        far.on('error', () => socket.destroy())
        far.once('close', () => socket.destroy())
        socket.once('close', () => far.destroy())
        if (rest.length > 0) far.write(rest)
        socket.pipe(far).pipe(socket)
      },
    })
  }
  const server: Server = scheme === 'https' ? createTlsServer({ ...tls }, onSocket) : createServer(onSocket)
  server.on('tlsClientError', () => undefined)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  proxy.port = (server.address() as AddressInfo).port
  proxy.url = `${scheme}://${login === undefined ? '' : `${login}@`}127.0.0.1:${proxy.port}`
  return proxy
}

/** True if the fault answers instead. */
function fails(socket: Socket, fault: ProxyFault | undefined): boolean {
  if (fault === undefined) return false
  socket.resume()
  if (fault === 'close') socket.end()
  else if (fault === 'garbage') socket.write('SSH-2.0-OpenSSH_9.6\r\n\r\n')
  else if (fault === 'endless') socket.write(`HTTP/1.1 200 OK\r\n${'x-more: y\r\n'.repeat(5000)}`)
  else if (fault !== 'silent') socket.end(`${fault}\r\n\r\n`)
  return true
}

interface Served {
  readonly login: string | undefined
  readonly join: (target: string, rest: Buffer) => void
}

async function serveConnect(socket: Socket, { login, join }: Served): Promise<void> {
  let head = Buffer.alloc(0)
  for (;;) {
    const end = head.indexOf('\r\n\r\n')
    if (end < 0) {
      const more = await next(socket)
      if (more === undefined) return
      head = Buffer.concat([head, more])
      continue
    }
    const [first = '', ...lines] = head.subarray(0, end).toString('latin1').split('\r\n')
    const said = lines.find((line) => line.startsWith('Proxy-Authorization: Basic '))?.slice(27)
    if (login !== undefined && Buffer.from(said ?? '', 'base64').toString('utf8') !== login) {
      socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n')
      return
    }
    socket.write('HTTP/1.1 200 Connection established\r\nvia: a test\r\n\r\n')
    join(first.split(' ')[1] ?? '', head.subarray(end + 4))
    return
  }
}

async function serveSocks(socket: Socket, { login, join }: Served): Promise<void> {
  const greeting = await next(socket)
  if (greeting === undefined) return
  const method = login === undefined ? 0 : 2
  if (!greeting.subarray(2).includes(method)) {
    socket.end(Buffer.of(5, 255))
    return
  }
  socket.write(Buffer.of(5, method))
  if (login !== undefined) {
    const said = (await next(socket)) ?? Buffer.alloc(2)
    const user = said.subarray(2, 2 + (said[1] ?? 0)).toString()
    const password = said.subarray(3 + (said[1] ?? 0)).toString()
    const isRight = `${user}:${password}` === login
    // In two pieces, as a network may deliver it.
    socket.write(Buffer.of(1))
    socket.write(Buffer.of(isRight ? 0 : 1))
    if (!isRight) return
  }
  const request = await next(socket)
  if (request === undefined) return
  const size = { 1: 4, 3: 1 + (request[4] ?? 0), 4: 16 }[request[3] ?? 1] ?? 4
  const at = request.subarray(4, 4 + size)
  const host = request[3] === 3 ? at.subarray(1).toString() : request[3] === 1 ? at.join('.') : at.toString('hex')
  const port = request.readUInt16BE(4 + size)
  if (host === 'refused.test') {
    socket.end(Buffer.of(5, 2, 0, 1, 0, 0, 0, 0, 0, 0))
    return
  }
  socket.write(Buffer.of(5, 0, 0, 1, 127, 0, 0, 1, 0, 0))
  join(`${host}:${port}`, Buffer.alloc(0))
}

/** Undefined at the end. Reads by the way of `readable`, so that nothing is lost when the socket is piped later. */
async function next(socket: Socket): Promise<Buffer | undefined> {
  for (;;) {
    const chunk = socket.read() as Buffer | null
    if (chunk !== null) return chunk
    if (socket.destroyed || socket.readableEnded) return undefined
    await new Promise<void>((resolve) => {
      const done = (): void => {
        for (const event of ['readable', 'end', 'close']) socket.off(event, done)
        resolve()
      }
      for (const event of ['readable', 'end', 'close']) socket.on(event, done)
    })
  }
}
