/** The console in a cluster, behind the proxy of a real kube-apiserver, with the rights that are installed. */
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { request as requestTls } from 'node:https'
import { networkInterfaces } from 'node:os'
import t, { type Test } from 'tap'
import { DEFAULT_VALUES } from '../../install/values/install-values.ts'
import { startCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { applyCrds, planeWithShop } from './support/apply-manifests.ts'
import { memberObjects } from './support/installed-objects.ts'
import { kubeProgramsMissing } from './support/kube-programs.ts'
import { pathOf } from './support/object-path.ts'

t.setTimeout(600_000)

const SYSTEM = 'sealane-system'
const NAME = 'sealane-console'
const READER = 'sealane-console-reader'
const RBAC = 'rbac.authorization.k8s.io'
/** An API server passes nothing on to loopback. */
const HOST = Object.values(networkInterfaces())
  .flat()
  .find((one) => one?.family === 'IPv4' && !one.internal)?.address
const missing = kubeProgramsMissing() ?? (HOST === undefined ? 'needs an IPv4 address besides loopback' : undefined)

t.test('a reader sees the page, and others hear nothing', { skip: missing ?? false }, async (t) => {
  const host = HOST ?? ''
  const plane = await planeWithShop(t)
  const { api } = plane
  await applyCrds(api)
  const values = { ...DEFAULT_VALUES, console: { ...DEFAULT_VALUES.console, enabled: true } }
  const objects = memberObjects(values)
  const namespace = objects.find(({ kind }) => kind === 'Namespace')!
  await api.apply(pathOf(namespace), namespace)
  const port = await freePort()
  for (const object of objects.filter(({ metadata }) => metadata.name.startsWith(NAME))) {
    // No node runs its pod, so the Service leads to this process.
    const { selector: _none, ...spec } = (object['spec'] ?? {}) as { selector?: object }
    await api.apply(pathOf(object), object.kind === 'Service' ? { ...object, spec } : object)
  }
  // The API server passes on to addresses of pods alone. No controller runs here that would make these objects.
  const { template } = objects.find(({ kind, metadata }) => kind === 'Deployment' && metadata.name === NAME)![
    'spec'
  ] as {
    readonly template: { readonly spec: object }
  }
  const path = `/api/v1/namespaces/${SYSTEM}/pods/${NAME}-0`
  const named = { apiVersion: 'v1', kind: 'Pod', metadata: { name: `${NAME}-0`, namespace: SYSTEM } }
  await api.apply(path, { ...named, spec: { ...template.spec, nodeName: 'w1' } })
  await api.apply(`${path}/status`, { ...named, status: { phase: 'Running', podIP: host, podIPs: [{ ip: host }] } })
  await api.apply(`/api/v1/namespaces/${SYSTEM}/endpoints/${NAME}`, {
    ...{ apiVersion: 'v1', kind: 'Endpoints', metadata: { name: NAME, namespace: SYSTEM } },
    subsets: [
      {
        addresses: [{ ip: host, targetRef: { kind: 'Pod', namespace: SYSTEM, name: `${NAME}-0` } }],
        ports: [{ name: 'console', port }],
      },
    ],
  })

  const pod = await plane.kubeconfigFor({ serviceAccount: { namespace: SYSTEM, name: NAME } })
  const listen = ['--listen', `${host}:${port}`, '--status-listen', '127.0.0.1:0']
  const served = start(t, ['console', 'serve', '--kubeconfig', pod, ...listen], {})
  const direct = `https://${host}:${port}/`
  await eventually(async () => (await ask(`${direct}api/state`)).code === 401, {
    deadlineMs: 60_000,
    say: `the console is up: ${served.remarks()}`,
  })

  const ana = { kubeconfig: await plane.kubeconfigFor({ user: 'ana' }), api: await plane.apiAs({ user: 'ana' }) }
  t.teardown(() => ana.api.close())
  const command = ['console', '--cluster', '--no-browser', '--listen', '127.0.0.1:0', '--kubeconfig', ana.kubeconfig]
  const before = await start(t, command, {}).result
  t.match(before.stderr, /serviceaccounts\/token .*forbidden.*\n.*has this right/s, 'a user without the Role')

  await api.apply(`/apis/${RBAC}/v1/namespaces/${SYSTEM}/rolebindings/ana`, {
    ...{ apiVersion: `${RBAC}/v1`, kind: 'RoleBinding', metadata: { name: 'ana', namespace: SYSTEM } },
    roleRef: { apiGroup: RBAC, kind: 'Role', name: READER },
    subjects: [{ apiGroup: RBAC, kind: 'User', name: 'ana' }],
  })
  const url = await eventually(
    async () => {
      const cli = start(t, command, {})
      const ended = cli.result.then(() => 'ended' as const)
      const found = eventually(() => /^http:\S+/m.exec(cli.answers())?.[0])
      return (await Promise.race([ended, found.catch(() => 'ended')])) === 'ended' ? undefined : await found
    },
    { deadlineMs: 60_000, say: 'an address for a user with the Role' },
  )
  const page = await ask(url)
  t.equal(page.code, 200)
  t.match(page.body, /<div id="page">/)
  const script = /src="\.(\/assets\/[^"]+\.js)"/.exec(page.body)?.[1] ?? ''
  t.match((await ask(new URL(script, url).href)).headers['content-type'], /^text\/javascript/)
  const state = (await ask(`${url}api/state`)).body
  t.match(JSON.parse(state), { about: { live: true } })
  t.notMatch(state, /forbidden|may not/i, 'the installed rights are enough')
  t.match((await ask(`${url}api/explain?from=shop/a&to=web.shop`)).body, /shop/)

  const following = request(`${url}api/events`, { agent: false })
  following.on('error', () => undefined)
  following.end()
  const [stream] = (await once(following, 'response')) as [IncomingMessage]
  let said = ''
  stream.on('error', () => undefined)
  stream.setEncoding('utf8').on('data', (text: string) => (said += text))
  await eventually(() => said.includes('event: beat'), { say: 'the stream goes on through the proxy' })
  stream.destroy()

  const proxied = `/api/v1/namespaces/${SYSTEM}/services/https:sealane-console:console/proxy/api/state`
  t.match(await api.raw('GET', proxied), { status: 401, text: 'expected the token of a reader\n' }, 'an administrator')
  const read = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest' }
  const made = async (account: string, spec: object): Promise<string> => {
    const path = `/api/v1/namespaces/${SYSTEM}/serviceaccounts/${account}/token`
    return (await api.post<{ status: { token: string } }>(path, { ...read, spec })).status.token
  }
  const rows: readonly [what: string, token: string, code: number][] = [
    ['a token of the account for the API server', await made(READER, {}), 401],
    ['one of another account', await made('sealane-console', { audiences: ['sealane-console'] }), 401],
    ['one of a reader', await made(READER, { audiences: ['sealane-console'] }), 200],
  ]
  for (const [what, token, code] of rows) {
    const answer = await eventually(async () => {
      const found = await ask(`${direct}api/state`, { 'x-sealane-token': token })
      return found.code === 503 ? undefined : found
    })
    t.equal(answer.code, code, what)
  }
  t.notMatch(served.remarks(), /eyJ/, 'no token in the log')

  const own = await plane.apiAs({ serviceAccount: { namespace: SYSTEM, name: NAME } })
  t.teardown(() => own.close())
  for (const path of [`/api/v1/namespaces/${SYSTEM}/secrets`, '/api/v1/secrets', '/api/v1/configmaps']) {
    t.equal((await own.raw('GET', path)).status, 403, path)
  }
})

function start(t: Test, words: readonly string[], env: Readonly<Record<string, string>>) {
  const cli = startCli(words, { env })
  t.teardown(() => {
    cli.stop()
    return cli.result
  })
  return cli
}

async function ask(url: string, headers: Readonly<Record<string, string>> = {}) {
  const send = url.startsWith('https:') ? requestTls : request
  const asked = send(url, { headers, agent: false, rejectUnauthorized: false })
  asked.end()
  const [response] = (await once(asked, 'response')) as [IncomingMessage]
  const body = (await response.toArray()).join('')
  return { code: response.statusCode ?? 0, headers: response.headers, body }
}
