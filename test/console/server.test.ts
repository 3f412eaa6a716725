/** The console's server on loopback sockets: what it answers, to whom, and how much. */
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import {
  type ConsoleServer,
  type ConsoleServerInit,
  type PageFiles,
  serveConsolePage,
} from '../../console/server/server.ts'
import { Readers, TOKEN_HEADER, runConsole } from '../../console/console.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { SECRETS } from '../cli/bundle/planted-secrets.ts'
import { eventually } from '../support/eventually.ts'
import { JumpingClock } from '../support/jumping-clock.ts'
import { consoleFacts, stateOf } from './support/console-facts.ts'

const PAGE: PageFiles = new Map([
  ['/', { type: 'text/html; charset=utf-8', body: Buffer.from('<!doctype html>page') }],
  ['/assets/page.js', { type: 'text/javascript; charset=utf-8', body: Buffer.from('1') }],
])
const TOKEN = 'correct-horse-battery'

async function serve(t: Test, init: Partial<ConsoleServerInit> = {}): Promise<ConsoleServer> {
  const server = await serveConsolePage({
    ...{ listen: { host: '127.0.0.1', port: 0 }, page: PAGE, clock: new SystemClock() },
    ...init,
  })
  t.teardown(() => server.close())
  return server
}

interface Answer {
  readonly code: number
  readonly headers: IncomingMessage['headers']
  readonly body: string
}

interface RequestInit {
  readonly method?: string
  readonly headers?: Record<string, string>
  readonly body?: string
}

async function ask(
  { url }: ConsoleServer,
  path: string,
  { method = 'GET', headers = {}, body }: RequestInit = {},
): Promise<Answer> {
  const asked = request(new URL(path, url), { method, headers, agent: false })
  asked.end(body)
  const [response] = (await once(asked, 'response')) as [IncomingMessage]
  const text = method === 'HEAD' ? '' : (await response.toArray()).join('')
  return { code: response.statusCode ?? 0, headers: response.headers, body: text }
}

/** An open stream: what it has said, and an end. */
async function follow(t: Test, { url }: ConsoleServer): Promise<{ said: () => string; response: IncomingMessage }> {
  const asked = request(new URL('/api/events', url), { agent: false })
  asked.on('error', () => undefined)
  asked.end()
  const [response] = (await once(asked, 'response')) as [IncomingMessage]
  t.teardown(() => response.destroy())
  let said = ''
  response
    .setEncoding('utf8')
    .on('data', (text: string) => (said += text))
    .on('error', () => undefined)
  return { said: () => said, response }
}

t.test('files, the snapshot, and nothing else', async (t) => {
  const server = await serve(t)
  t.equal((await ask(server, '/api/state')).code, 503, 'no facts yet')
  server.publish(stateOf())
  const rows: readonly [path: string, code: number, type: RegExp][] = [
    ['/', 200, /^text\/html/],
    ['/?a=b', 200, /^text\/html/],
    ['/assets/page.js', 200, /^text\/javascript/],
    ['/api/state', 200, /^application\/json/],
    ['/index.html', 404, /^text\/plain/],
    ['/assets/../package.json', 404, /^text\/plain/],
    ['/%2e%2e/package.json', 404, /^text\/plain/],
    ['/api', 404, /^text\/plain/],
    ['/login', 404, /^text\/plain/],
    ['/metrics', 404, /^text\/plain/],
  ]
  for (const [path, code, type] of rows) {
    const { code: got, headers } = await ask(server, path)
    t.equal(got, code, path)
    t.match(headers['content-type'], type, path)
    t.match(
      headers['content-security-policy'],
      /^default-src 'none'; script-src 'self';.* frame-ancestors 'none'$/,
      path,
    )
    t.notMatch(headers['content-security-policy'], /unsafe|http|\*|data:/, path)
    t.equal(headers['x-content-type-options'], 'nosniff')
    t.equal(headers['cache-control'], 'no-store')
    t.equal(headers['access-control-allow-origin'], undefined)
  }
})

t.test('refusals by method, Host and Origin', async (t) => {
  const server = await serve(t)
  server.publish(stateOf())
  for (const method of ['POST', 'PUT', 'DELETE', 'HEAD', 'OPTIONS']) {
    t.equal((await ask(server, '/api/state', { method })).code, 405, method)
  }
  for (const headers of [
    { host: 'evil.example' },
    { origin: 'https://evil.example' },
    { 'sec-fetch-site': 'cross-site' },
  ]) {
    for (const path of ['/api/state', '/api/events']) {
      const { code, body } = await ask(server, path, { headers })
      t.equal(code, 403, JSON.stringify(headers))
      t.notMatch(body, /milano|paris/)
    }
  }
})

t.test('other machines need a token', async (t) => {
  await t.rejects(serve(t, { listen: { host: '0.0.0.0', port: 0 } }), /other machines can reach this address/)
  const server = await serve(t, { token: TOKEN, limits: { loginMs: 0 } })
  server.publish(stateOf())
  const refused = await ask(server, '/')
  t.equal(refused.code, 401)
  t.match(refused.body, /<form method="post" action="\.\/login">/)
  t.equal((await ask(server, '/api/events')).code, 401)
  t.equal((await ask(server, '/api/state', { headers: { authorization: `Bearer ${TOKEN}` } })).code, 200)

  const login = (body: string): Promise<Answer> => ask(server, '/login', { method: 'POST', body })
  t.equal((await login('token=wrong')).code, 401)
  const { code, headers } = await login(`token=${TOKEN}`)
  t.equal(code, 303)
  const [cookie = ''] = headers['set-cookie'] ?? []
  t.match(cookie, /; HttpOnly; SameSite=Strict$/)
  t.notOk(cookie.includes(TOKEN), 'the cookie is not the token')
  t.equal((await ask(server, '/api/state', { headers: { cookie: cookie.split(';')[0] ?? '' } })).code, 200)

  // A browser sends both, and the later login would replace a cookie of the same name.
  const second = await serve(t, { token: TOKEN, limits: { loginMs: 0 } })
  const later = await ask(second, '/login', { method: 'POST', body: `token=${TOKEN}` })
  const both = [cookie, ...(later.headers['set-cookie'] ?? [])].map((text) => text.split(';')[0] ?? '')
  t.equal(new Set(both.map((text) => text.split('=')[0])).size, 2, 'consoles at two ports have two cookies')
  for (const one of [server, second])
    t.equal((await ask(one, '/api/state', { headers: { cookie: both.join('; ') } })).code === 401, false)
  await t.rejects(login('x'.repeat(10_000)), /hang up|ECONNRESET|EPIPE/)
})

t.test('attempts to log in have a rate', async (t) => {
  const server = await serve(t, { token: TOKEN, limits: { loginMs: 60_000 } })
  const login = (): Promise<Answer> => ask(server, '/login', { method: 'POST', body: 'token=wrong' })
  t.equal((await login()).code, 401)
  t.equal((await login()).code, 429)
})

t.test('a stream: everything first, then what has changed, and signs of life', async (t) => {
  const server = await serve(t, { limits: { everyMs: 0, beatMs: 20 } })
  const state = stateOf()
  server.publish(state)
  const stream = await follow(t, server)
  await eventually(() => stream.said().includes('event: beat'))
  const { format: _format, ...sections } = state
  const [first = ''] = stream.said().split('\n\n')
  t.same(JSON.parse(first.replace('event: sections\ndata: ', '')), sections)
  server.publish({ ...state, denied: { ...state.denied, note: 'changed' } })
  const second = await eventually(
    () =>
      stream
        .said()
        .split('\n\n')
        .filter((one) => one.startsWith('event: sections'))[1],
  )
  t.same(Object.keys(JSON.parse(second.replace('event: sections\ndata: ', '')) as object), ['denied'])
})

t.test('changes come together, and only what is sent is written as a text', async (t) => {
  const server = await serve(t, { limits: { everyMs: 100 } })
  const state = stateOf()
  const stream = await follow(t, server)
  let written = 0
  const toJSON = (): object => {
    written += 1
    return state.links
  }
  const links = { ...state.links, toJSON }
  for (let i = 0; i < 50; i += 1) server.publish({ ...state, links, denied: { ...state.denied, note: `n${i}.` } })
  await eventually(() => stream.said().includes('"n49."'))
  const sendings = stream.said().split('event: sections').length - 1
  t.ok(sendings <= 2)
  t.equal(written, 1, 'the same section once')
  for (let i = 0; i < 50; i += 1) server.publish({ ...state, links: { ...links }, about: { ...state.about } })
  await eventually(() => stream.said().split('event: sections').length - 1 > sendings)
  t.ok(written <= 3, `${written} of 50 new ones: the others were never sent`)
})

t.test('the 33rd page waits outside, until another one closes', async (t) => {
  const server = await serve(t)
  server.publish(stateOf())
  const streams = await Promise.all(Array.from({ length: 32 }, () => follow(t, server)))
  const { code, body } = await ask(server, '/api/events')
  t.equal(code, 503)
  t.match(body, /32 pages are open already/)
  t.equal((await ask(server, '/api/state')).code, 200, 'a snapshot is still to be had')
  streams[0]?.response.destroy()
  const next = await eventually(async () => {
    const stream = await follow(t, server)
    return stream.response.statusCode === 200 ? stream : undefined
  })
  await eventually(() => next.said().includes('event: sections'))
})

t.test('a client that does not read is dropped, and makes room', async (t) => {
  const server = await serve(t, { limits: { clients: 1, beatMs: 20, unreadMs: 50 } })
  const state = stateOf()
  // More than the kernel holds between two sockets.
  server.publish({ ...state, denied: { ...state.denied, note: 'x'.repeat(32 << 20) } })
  const { port } = new URL(server.url)
  const socket = connect(Number(port), '127.0.0.1')
  socket.on('error', () => undefined)
  t.teardown(() => socket.destroy())
  socket.write(`GET /api/events HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n\r\n`)
  await once(socket, 'readable')
  server.publish(state)
  const next = await eventually(async () => {
    const stream = await follow(t, server)
    return stream.response.statusCode === 200 ? stream : undefined
  })
  await eventually(() => next.said().includes('event: beat'))
  t.ok(next.said().length < 1 << 20)
})

t.test('connections that ask nothing give way', async (t) => {
  const server = await serve(t, { limits: { connections: 3 } })
  server.publish(stateOf())
  const stream = await follow(t, server)
  const { port } = new URL(server.url)
  const silent = Array.from({ length: 8 }, () => connect(Number(port), '127.0.0.1').on('error', () => undefined))
  t.teardown(() => silent.forEach((socket) => socket.destroy()))
  await eventually(() => silent.filter(({ closed }) => closed).length >= 6, { say: 'two are left' })
  t.equal((await ask(server, '/api/state')).code, 200)
  t.equal(server.pages, 1, 'an open page stays')
  t.notOk(stream.response.destroyed)
})

t.test('what is published while the stream of a reader ends does no harm', async (t) => {
  const clock = new JumpingClock()
  const readers = new Readers({ clock, isCandidate: () => true, review: () => Promise.resolve(true) })
  const server = await serve(t, { clock, readers, limits: { everyMs: 0 } })
  const state = stateOf()
  server.publish(state)
  const asked = request(new URL('/api/events', server.url), {
    agent: false,
    headers: { [TOKEN_HEADER]: 'e30.e30.c2ln' },
  })
  asked.end()
  const [response] = (await once(asked, 'response')) as [IncomingMessage]
  const ended = once(response.resume(), 'end')
  clock.jump(600_000)
  for (let i = 0; i < 200; i += 1) {
    server.publish({ ...state, denied: { ...state.denied, note: `n${i}.` } })
    await Promise.resolve()
  }
  await ended
  await eventually(() => server.pages === 0)
})

t.test('a whole console: looks again, and says when it cannot', async (t) => {
  const stopping = new AbortController()
  let look = 0
  const facts = () => {
    look += 1
    if (look > 2) return Promise.reject(new Error(`the API server is away\u001b[2J`))
    return Promise.resolve(
      consoleFacts({ change: (at) => Object.assign(at('Cluster')[1]!.metadata, { note: SECRETS }) }),
    )
  }
  const opened = Promise.withResolvers<string>()
  const ended = runConsole(
    {
      ...{ listen: { host: '127.0.0.1', port: 0 }, page: PAGE, source: { facts, everyMs: 5 } },
      onOpen: opened.resolve,
    },
    stopping.signal,
  )
  const url = await opened.promise
  const server = { url } as ConsoleServer
  const body = await eventually(async () => {
    const { body } = await ask(server, '/api/state')
    return body.includes('"failing"') ? body : undefined
  })
  t.match(body, /the API server is away\?\[2J/)
  t.match(body, /milano/, 'the last facts stay')
  for (const secret of SECRETS) t.notOk(body.includes(secret))
  stopping.abort()
  await ended
  await t.rejects(ask(server, '/'), /ECONNREFUSED/)
})

t.test('without a reader a console looks seldom, where that was asked for', async (t) => {
  let rounds = 0
  class CountingClock extends JumpingClock {
    override sleep(ms: number, signal: AbortSignal): Promise<void> {
      if (ms === 5) rounds += 1
      return super.sleep(ms, signal)
    }
  }
  const clock = new CountingClock()
  let looks = 0
  const facts = () => Promise.resolve(((looks += 1), consoleFacts()))
  const stopping = new AbortController()
  const opened = Promise.withResolvers<string>()
  const source = { facts, everyMs: 5, idleMs: 3_600_000 }
  const ended = runConsole(
    { listen: { host: '127.0.0.1', port: 0 }, page: PAGE, clock, source, onOpen: opened.resolve },
    stopping.signal,
  )
  const server = { url: await opened.promise } as ConsoleServer
  const looksInTenRounds = async (): Promise<number> => {
    const [before, until] = [looks, rounds + 10]
    await eventually(() => rounds >= until)
    return looks - before
  }
  t.equal(await looksInTenRounds(), 0, 'no one has read it yet')
  await ask(server, '/api/state')
  t.ok((await looksInTenRounds()) > 5)
  const stream = await follow(t, server)
  clock.jump(61_000)
  t.ok((await looksInTenRounds()) > 5, 'a page is open')
  stream.response.destroy()
  await eventually(async () => (await looksInTenRounds()) === 0)
  clock.jump(3_600_000)
  t.equal(await looksInTenRounds(), 1)
  stopping.abort()
  await ended
})

t.test('a port in use: another one where none was named', async (t) => {
  const first = await serve(t)
  const port = Number(new URL(first.url).port)
  await t.rejects(serve(t, { listen: { host: '127.0.0.1', port } }), /another process uses the port/)
  const stopping = new AbortController()
  const opened = Promise.withResolvers<string>()
  const source = { facts: () => Promise.resolve(consoleFacts()), everyMs: undefined }
  const ended = runConsole(
    { listen: { host: '127.0.0.1', port }, anyPort: true, page: PAGE, source, onOpen: opened.resolve },
    stopping.signal,
  )
  t.not(await opened.promise, first.url)
  stopping.abort()
  await ended
})
