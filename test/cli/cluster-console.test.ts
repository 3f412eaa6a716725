/**
 * `sealane console --cluster`: the page of a console in a cluster, through the proxy of an API server, and what others
 * hear who call the pod.
 */
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { request as requestTls } from 'node:https'
import t, { type Test } from 'tap'
import { adminOf } from '../../cli/context/cluster-admin.ts'
import { PlainLogger } from '../../cli/context/output.ts'
import { readersOf } from '../../cli/status/console/cluster-console.ts'
import { type ConsoleServer, type PageFiles, serveConsolePage } from '../../console/server/server.ts'
import { ANSWER_HEADER, TOKEN_HEADER } from '../../console/server/readers.ts'
import { openKubeApi } from '../../kubeapi/kube/kube-api.ts'
import { stateOf } from '../console/support/console-facts.ts'
import { ApiServerProxy } from '../console/support/api-server-proxy.ts'
import { makeClusterCa } from '../kube/support/cluster-certificates.ts'
import { eventually } from '../support/eventually.ts'
import { JumpingClock } from '../support/jumping-clock.ts'
import { type StartedCli, runCli, startCli } from './run-cli.ts'

const PAGE: PageFiles = new Map([
  ['/', { type: 'text/html; charset=utf-8', body: Buffer.from('<!doctype html>page') }],
  ['/assets/page-x1.js', { type: 'text/javascript; charset=utf-8', body: Buffer.from('1') }],
])

interface Pod {
  readonly api: ApiServerProxy
  readonly server: ConsoleServer
  readonly clock: JumpingClock
}

/** A console as in a pod, whose readers the API server reviews. */
async function startPod(t: Test): Promise<Pod> {
  const api = new ApiServerProxy()
  await api.start(t)
  const clock = new JumpingClock()
  const output = { answer: () => undefined, remark: () => undefined }
  const init = { kubeconfig: api.kubeconfig, namespace: 'sealane-system', env: {} }
  const kube = await openKubeApi({ clock, logger: new PlainLogger(output) }, init)
  t.teardown(() => kube.close())
  const admin = adminOf(kube)
  const { certificate, key } = await (await makeClusterCa('pod')).issue({ name: 'console', hosts: ['127.0.0.1'] })
  const server = await serveConsolePage({
    ...{ listen: { host: '127.0.0.1', port: 0 }, page: PAGE, clock },
    tls: { cert: Buffer.from(certificate), key: Buffer.from(key) },
    readers: readersOf({ clock, admin }),
    explain: ({ from }) => Promise.resolve({ t: 'failed', why: `asked from ${from.what}` } as never),
  })
  t.teardown(() => server.close())
  server.publish(stateOf())
  api.pod = server.url
  return { api, server, clock }
}

/** The command of a reader. Resolves once it has said its address. */
async function startReader(t: Test, { api }: Pod): Promise<{ readonly url: string; readonly cli: StartedCli }> {
  const cli = startCli(['console', '--cluster', '--no-browser', '--listen', '127.0.0.1:0'], {
    env: { KUBECONFIG: api.kubeconfig },
  })
  t.teardown(() => {
    cli.stop()
    return cli.result
  })
  const url = await eventually(() => /^http:\S+/m.exec(cli.answers())?.[0], { say: `an address: ${cli.remarks()}` })
  return { url, cli }
}

interface SentRequest {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  /** As it is, without what URL() corrects. */
  readonly path?: string
}

async function ask(url: string, { method = 'GET', headers = {}, path }: SentRequest = {}) {
  const send = url.startsWith('https:') ? requestTls : request
  const given = path === undefined ? {} : { path }
  const asked = send(url, { method, headers, agent: false, rejectUnauthorized: false, ...given })
  asked.end()
  const [response] = (await once(asked, 'response')) as [IncomingMessage]
  const body = (await response.toArray()).join('')
  return { code: response.statusCode ?? 0, headers: response.headers, body }
}

t.test('a reader sees the page, its facts, its stream and explanations', async (t) => {
  const pod = await startPod(t)
  const { url } = await startReader(t, pod)
  const page = await ask(url)
  t.match(page, { code: 200, body: '<!doctype html>page', headers: { 'content-type': 'text/html; charset=utf-8' } })
  t.match(page.headers['content-security-policy'], /default-src 'none'/)
  t.notOk(page.headers['set-cookie'], 'a browser gets nothing that counts at the console')
  t.equal((await ask(`${url}assets/page-x1.js`)).headers['content-type'], 'text/javascript; charset=utf-8')
  t.match(JSON.parse((await ask(`${url}api/state`)).body), { about: { live: true } })
  t.match((await ask(`${url}api/explain?from=shop/a&to=b.shop`)).body, /asked from pod/)
  t.equal((await ask(`${url}api/explain?from=%20&to=b`)).code, 400, 'as it was answered')
  t.equal((await ask(`${url}nowhere`)).code, 404)

  const following = request(`${url}api/events`, { agent: false })
  following.on('error', () => undefined)
  following.end()
  const [stream] = (await once(following, 'response')) as [IncomingMessage]
  t.equal(stream.headers['content-type'], 'text/event-stream')
  let said = ''
  stream.setEncoding('utf8').on('data', (text: string) => (said += text))
  stream.on('error', () => undefined)
  await eventually(() => said.startsWith('event: sections'), { say: 'the sections' })
  t.equal(pod.server.pages, 1, 'the pod knows of the page')
  const before = said.length
  pod.server.publish(stateOf({ input: { flags: '--context c9' } }))
  await eventually(() => said.slice(before).includes('--context c9'), { say: 'what has changed' })
  stream.destroy()
  await eventually(() => pod.server.pages === 0, { say: 'the end is heard' })
})

t.test('the token travels in a header alone, and a token that is refused is replaced', async (t) => {
  const pod = await startPod(t)
  const { url } = await startReader(t, pod)
  await ask(`${url}api/state`)
  const [first = ''] = pod.api.given
  t.equal(new Set(pod.api.given).size, 1, 'one token for all requests')
  pod.api.forget()
  pod.clock.jump(61_000)
  t.equal((await ask(`${url}api/state`)).code, 200)
  const last = pod.api.given.at(-1) ?? ''
  t.not(last, first)
  for (const token of [first, last]) {
    t.notOk(
      pod.api.lines.some((line) => line.includes(token)),
      'not in what an audit log has',
    )
  }
  t.ok(pod.api.lines.every((line) => !/token=/i.test(line)))
})

t.test('the address on this machine answers its own page alone, and leads to the console alone', async (t) => {
  const pod = await startPod(t)
  const { url } = await startReader(t, pod)
  const { port } = new URL(url)
  const rows: readonly [what: string, asked: SentRequest, code: number][] = [
    ['a name that was turned here', { headers: { host: `evil.example:${port}` } }, 403],
    ['a page of another origin', { headers: { origin: 'https://evil.example' } }, 403],
    ['a script of another site', { path: '/api/state', headers: { 'sec-fetch-site': 'cross-site' } }, 403],
    ['a write', { method: 'POST', path: '/api/state' }, 405],
    ['up', { path: '/../../../../secrets' }, 404],
    ['up, escaped', { path: '/%2e%2e/%2e%2e/secrets' }, 404],
    ['up, by another slash', { path: '/..\\..\\secrets' }, 404],
    ['a second slash', { path: '//evil.example/' }, 404],
    ['a hidden file', { path: '/.git' }, 404],
    ['an absolute address', { path: 'http://evil.example/' }, 404],
  ]
  await ask(`${url}api/state`)
  const before = pod.api.lines.length
  for (const [what, asked, code] of rows) t.equal((await ask(url, asked)).code, code, what)
  t.equal(pod.api.lines.length, before, 'the API server hears none of it')
  await ask(url, { path: '/api/state?watch=1' })
  t.match(pod.api.lines.at(-1), /\/proxy\/api\/state$/, 'without the query')
})

t.test('a caller of the pod without the token of a reader hears nothing', async (t) => {
  const { api, server, clock } = await startPod(t)
  const other = api.issue('sealane-agent')
  const elsewhere = api.issue('sealane-console-reader', 'https://kubernetes.default.svc')
  const forAYear = api.issue(undefined, undefined, 31_536_000)
  const over = api.issue(undefined, undefined, -120)
  const reader = api.issue()
  const bearer = (token: string) => ({ headers: { authorization: `Bearer ${token}` } })
  const token = (text: string, more = {}) => ({ headers: { [TOKEN_HEADER]: text, ...more } })
  const rows: readonly [what: string, asked: SentRequest, code: number][] = [
    ['nothing', {}, 401],
    ['its stream', { path: '/api/events' }, 401],
    ['its facts', { path: '/api/state' }, 401],
    ['a write', { method: 'POST' }, 401],
    ['a log in', { method: 'POST', path: '/login' }, 401],
    ['a made-up token', token('a.b.c'), 401],
    ['a token of another account', token(other), 401],
    ['a token for the API server', token(elsewhere), 401],
    ['a token that outlives the right to make it', token(forAYear), 401],
    ['a token that has ended', token(over), 401],
    ['the token in the address', { path: `/api/state?token=${reader}` }, 401],
    ['the token where the API server takes it away', bearer(reader), 401],
    ['the Host of the API server', { headers: { host: 'kubernetes.default.svc' } }, 401],
    ['a reader', token(reader), 200],
    ['a reader, by any Host', token(reader, { host: 'api.example:6443' }), 200],
    ['a reader that writes', { method: 'POST', ...token(reader) }, 405],
    ['a browser with the token', token(reader, { origin: 'http://127.0.0.1:8001' }), 403],
    ['a page behind the same proxy', token(reader, { 'sec-fetch-site': 'same-origin' }), 403],
  ]
  for (const [what, asked, code] of rows) {
    clock.jump(51)
    const answer = await ask(server.url, asked)
    t.equal(answer.code, code, what)
    if (code !== 200) t.notMatch(answer.body, /[{<]|c1/, `${what}: nothing of it`)
    if (code === 401) t.equal(answer.body, 'expected the token of a reader\n')
    t.equal(answer.headers[ANSWER_HEADER], '1')
  }
})

t.test('a stream ends when its token may have ended', async (t) => {
  const pod = await startPod(t)
  const asked = requestTls(new URL('/api/events', pod.server.url), {
    ...{ headers: { [TOKEN_HEADER]: pod.api.issue() }, agent: false, rejectUnauthorized: false },
  })
  asked.end()
  const [stream] = (await once(asked, 'response')) as [IncomingMessage]
  t.equal(stream.statusCode, 200)
  t.equal(pod.server.pages, 1)
  stream.resume()
  const ended = once(stream, 'end')
  await eventually(() => {
    pod.clock.jump(600_000)
    return pod.server.pages === 0
  })
  await ended
})

t.test('what is missing is said, with what to do', async (t) => {
  const pod = await startPod(t)
  const command = ['console', '--cluster', '--no-browser', '--listen', '127.0.0.1:0']
  const env = { KUBECONFIG: pod.api.kubeconfig }
  pod.api.pod = undefined
  const down = await runCli(command, { env })
  t.equal(down.code, 1)
  t.match(down.stderr, /the console does not run: .*\n.*kubectl -n sealane-system describe deployment sealane-console/)
  pod.api.installed = false
  const absent = await runCli(command, { env })
  t.match(absent.stderr, /no console is installed\n.*sealane join .*--console/)
  const rows: readonly [words: string[], said: RegExp][] = [
    [['--bundle', 'f'], /cannot be used with/],
    [['--interval', '2s'], /cannot be used with/],
    [['--context', 'a', '--context', 'b'], /--cluster: expected at most one --context/],
  ]
  for (const [words, said] of rows) {
    const { code, stderr } = await runCli([...command, ...words], { env })
    t.equal(code, 2, words.join(' '))
    t.match(stderr, said)
  }
})
