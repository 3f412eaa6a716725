/** A failing API server: a proxy that forwards requests, or answers with a chosen error. */
import {
  type Http2ServerRequest,
  type Http2ServerResponse,
  type IncomingHttpHeaders,
  createSecureServer,
} from 'node:http2'
import { Agent, request } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type { Test } from 'tap'
import type { ControlPlane } from '../support/control-plane.ts'
import { writeKubeconfig } from '../support/kubeconfig-file.ts'

export interface FaultProxy {
  readonly kubeconfig: string
  /** While it is set, every request is answered with this status. */
  status: number | undefined
  /** The Retry-After of such an answer, in seconds. Undefined: it has none. */
  retryAfter: number | undefined
  /** The number of requests, however they were answered. */
  requests: number
  /** Breaks all connections. */
  cut(): void
  /** Open answers get no more data and do not end before `end()`, whatever the server does. */
  freeze(): void
  /** Ends all answers in good order. */
  end(): void
}

/** The proxy has the administrator's certificate, so every client of the proxy acts as the administrator. */
export async function faultProxy(t: Test, plane: ControlPlane): Promise<FaultProxy> {
  const own = await plane.ca.issue({ name: 'proxy', hosts: ['127.0.0.1'] })
  const admin = await plane.ca.issue({ name: 'kubernetes-admin', groups: ['system:masters'] })
  const agent = new Agent({ ca: plane.ca.certificate, cert: admin.certificate, key: admin.key, keepAlive: true })
  const sockets = new Set<Socket>()
  const server = createSecureServer({ cert: own.certificate, key: own.key })
  const answers = new Set<Http2ServerResponse>()
  const frozen = new Set<Http2ServerResponse>()
  const proxy: FaultProxy = {
    kubeconfig: '',
    status: undefined,
    retryAfter: undefined,
    requests: 0,
    cut: () => sockets.forEach((socket) => socket.destroy()),
    freeze: () => answers.forEach((answer) => frozen.add(answer)),
    end: () => answers.forEach((answer) => answer.end()),
  }
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.once('close', () => sockets.delete(socket))
  })
  server.on('sessionError', () => undefined)
  const pass = (inside: Http2ServerRequest, answer: Http2ServerResponse): void => {
    proxy.requests += 1
    if (proxy.status !== undefined) {
      const retryAfter = proxy.retryAfter === undefined ? {} : { 'retry-after': String(proxy.retryAfter) }
      answer.writeHead(proxy.status, { ...retryAfter, 'content-type': 'application/json' })
      answer.end(JSON.stringify({ kind: 'Status', code: proxy.status, message: 'the server has a bad day' }))
      return
    }
    const options = { method: inside.method, agent, headers: plain(inside.headers) }
    const outside = request(new URL(inside.url, plane.url), options)
    answers.add(answer)
    const fail = (): void => {
      if (!frozen.has(answer)) answer.stream.destroy()
    }
    outside.on('response', (response) => {
      answer.writeHead(response.statusCode ?? 500, { 'content-type': response.headers['content-type'] ?? '' })
      response.on('data', (chunk: Buffer) => {
        if (!frozen.has(answer)) answer.write(chunk)
      })
      response.on('end', () => {
        if (!frozen.has(answer)) answer.end()
      })
      response.on('error', fail)
    })
    outside.on('error', fail)
    answer.on('close', () => {
      answers.delete(answer)
      frozen.delete(answer)
      outside.destroy()
    })
    inside.pipe(outside)
  }
  server.on('request', pass)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    proxy.cut()
    server.close()
    agent.destroy()
  })
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
  const credentials = { token: 'anything' }
  const path = `${plane.kubeconfig}-proxy-${new URL(url).port}`
  return Object.assign(proxy, {
    kubeconfig: writeKubeconfig(path, { cluster: 'c1', user: 'any', url, ca: plane.ca.certificate, credentials }),
  })
}

/** The headers without those of HTTP/2 and without the client's credentials. */
function plain(headers: IncomingHttpHeaders): Record<string, string> {
  const kept = Object.entries(headers).filter(([name]) => !name.startsWith(':') && name !== 'authorization')
  return Object.fromEntries(kept.map(([name, value]) => [name, String(value)]))
}
