/**
 * `sealane status` of a Kubernetes cluster: its requests, the rights that it needs, and the cost of a missing answer.
 */
import t from 'tap'
import { KIND_PLACES } from '../../../kubeapi/kube/kinds.ts'
import { type Fault, type FakeApiServer, fakeApiServer } from '../../support/fake-api-server.ts'
import { runCli } from '../run-cli.ts'
import { PROXY, clusterWith, pods, podsThatLooked } from './cluster-with.ts'

async function status(server: FakeApiServer, ...args: readonly string[]) {
  const { code, stdout, stderr } = await runCli(['status', '--kubeconfig', server.kubeconfig, '-o', 'json', ...args])
  const document = (stdout === '' ? {} : JSON.parse(stdout)) as {
    readonly problems?: readonly {
      readonly reason: string
      readonly subject: { readonly name: string }
      readonly seen: string
    }[]
    readonly [field: string]: unknown
  }
  return {
    code,
    stderr,
    document,
    lines: (document.problems ?? []).map(({ reason, subject }) => `${reason} ${subject.name}`),
  }
}

t.test('a healthy cluster: only reads, and each kind once', async (t) => {
  const server = await clusterWith(t)
  const { code, document, lines } = await status(server)
  t.same(lines, [])
  t.equal(code, 0)
  t.match(document, {
    health: 'healthy',
    broker: { state: 'connected', agent: 'sealane-agent-0' },
    clusterDns: { state: 'answers' },
    exports: { total: 1, exported: 1 },
    imports: { total: 1, usable: 1 },
  })
  t.same(document['versions'], [
    { part: 'agent', version: '0.1.0', count: 2 },
    { part: 'cli', version: '0.1.0', count: 1 },
    { part: 'dns', version: '0.1.0', count: 2 },
    { part: 'gateway', version: '0.1.0', count: 2 },
    { part: 'routeagent', version: '0.1.0', count: 3 },
  ])
  t.same(
    server.requests.filter((line) => !line.startsWith('GET ')),
    [],
    'it writes nothing',
  )
  const lists = server.requests.filter((line) => line.includes('limit='))
  t.equal(lists.length, 16)
  t.equal(new Set(lists).size, lists.length)
  t.same(await status(server).then((again) => again.lines), [], 'and again')
})

t.test('pods of imported services are listed where the agent does not say that none is missing', async (t) => {
  const rows: readonly (readonly [name: string, fault: NonNullable<Fault>, isListed: boolean])[] = [
    ['it has looked a moment ago', podsThatLooked(), false],
    ['it misses one', podsThatLooked(1), true],
    ['it looked long ago', podsThatLooked(0, 60_000), true],
    ['it does not say so', pods, true],
    ['it says nonsense', said({ withoutBackends: -1, at: 'yesterday' }), true],
    ['it does not say when', said({ withoutBackends: 0 }), true],
    ['it says so of another time', said({ withoutBackends: 0, at: 'x' }), true],
    ['it looks ahead', podsThatLooked(0, -60_000), true],
    ['it does not answer', (request) => (request.path.includes('sealane-agent-0:') ? 'hang' : pods(request)), true],
  ]
  for (const [name, fault, isListed] of rows) {
    const server = await clusterWith(t)
    server.fault = fault
    const { document } = await status(server)
    t.equal(
      server.requests.some((line) => line.includes('/endpointslices')),
      isListed,
      name,
    )
    t.match(document, { imports: { total: 1, usable: 1, withoutBackends: 0 } }, name)
  }
  const server = await clusterWith(t)
  server.fault = podsThatLooked()
  await runCli(['diagnose', '--kubeconfig', server.kubeconfig, '-o', 'json'])
  t.ok(
    server.requests.some((line) => line.includes('/endpointslices')),
    'diagnose looks itself',
  )
})

function said(imports: object): NonNullable<Fault> {
  return (request) => {
    const answer = pods(request)
    const { body } = (typeof answer === 'object' ? answer : {}) as { body?: object }
    return body === undefined || !('broker' in body)
      ? answer
      : { status: 200, body: { ...body, now: new Date().toISOString(), imports } }
  }
}

t.test('a pod that hangs costs no more than its time', async (t) => {
  const server = await clusterWith(t)
  server.fault = (request) => (request.path.includes('sealane-agent-0:') ? 'hang' : pods(request))
  const began = performance.now()
  const { code, lines, document } = await status(server)
  t.ok(performance.now() - began < 4000)
  t.same(lines, ['NotAnswered sealane-agent-0'])
  t.match(document.problems, [{ seen: /^no answer within [\d.]+m?s$/ }])
  t.equal(code, 0, 'the objects say that all is well')
})

t.test('a pod of the last release, one that is broken, and one that lies', async (t) => {
  const answers: readonly (readonly [body: { status: number; body: unknown }, line: string])[] = [
    [{ status: 404, body: 'try /readyz\n' }, 'NotAnswered sealane-agent-0'],
    [
      { status: 503, body: { kind: 'Status', message: 'error trying to reach service: connection refused' } },
      'NotAnswered sealane-agent-0',
    ],
    [{ status: 200, body: 'x'.repeat(2 << 20) }, 'NotAnswered sealane-agent-0'],
    [
      { status: 200, body: { part: 'agent', version: '0.1.0', ready: true, broker: { publish: 'x' } } },
      'NotReadable fact',
    ],
  ]
  for (const [answer, line] of answers) {
    const server = await clusterWith(t)
    server.fault = (request) => (request.path.includes('sealane-agent-0:') ? answer : pods(request))
    const { lines } = await status(server)
    t.same(lines, [line])
  }
})

/** Returns the fault of an API server that forbids a list. */
function forbidding(plural: string): NonNullable<Fault> {
  return (request) => {
    if (!request.path.endsWith(`/${plural}`)) return pods(request)
    const message = `${plural} is forbidden: User "eva" cannot list resource "${plural}"`
    return { status: 403, body: { kind: 'Status', status: 'Failure', code: 403, reason: 'Forbidden', message } }
  }
}

t.test('a right that is missing is a problem that names it', async (t) => {
  const rows: readonly (readonly [plural: string, code: number, lines: readonly string[], right: RegExp])[] = [
    ['gateways', 1, ['RightMissing *'], /the right to list gateways\.sealane\.io is needed$/],
    ['endpointslices', 1, ['RightMissing *'], /list endpointslices\.discovery\.k8s\.io is needed$/],
    ['networkpolicies', 0, ['RightMissing *'], /list networkpolicies\.networking\.k8s\.io is needed$/],
    ['nodes', 0, ['RightMissing *'], /list nodes is needed$/],
    ['leases', 0, ['RightMissing *'], /list leases\.coordination\.k8s\.io in namespace sealane-system is needed$/],
  ]
  for (const [plural, code, lines, right] of rows) {
    const server = await clusterWith(t)
    server.fault = forbidding(plural)
    const answer = await status(server)
    t.same([answer.code, answer.lines], [code, lines], plural)
    t.match(answer.document.problems?.[0]?.seen, right)
  }
  const server = await clusterWith(t)
  server.fault = (request) =>
    PROXY.test(request.path)
      ? { status: 403, body: { kind: 'Status', code: 403, reason: 'Forbidden', message: 'pods "x" is forbidden' } }
      : pods(request)
  const { code, lines, document } = await status(server)
  t.equal(code, 0, 'without it everything is known that objects say')
  t.same(new Set(lines.map((line) => line.split(' ')[0])), new Set(['RightMissing']))
  t.match(document.problems?.[0]?.seen, /the right to get pods\/proxy in namespace sealane-system is needed$/)
  t.match(document, { broker: { state: 'unknown', agent: 'sealane-agent-0' } })
})

t.test('a CRD that was deleted is down, and told by its name', async (t) => {
  const server = await clusterWith(t)
  server.missing.add('multicluster.x-k8s.io/v1beta1/serviceimports')
  const { code, lines, document } = await status(server)
  t.same([code, lines], [2, ['KindMissing *']])
  t.match(document.problems?.[0]?.seen, 'the API server does not know serviceimports.multicluster.x-k8s.io')
})

t.test('a list that hangs is a problem; an API server that does not answer at all has exit code 3', async (t) => {
  const server = await clusterWith(t)
  server.fault = (request) => (request.path.endsWith('/routeagents') ? 'hang' : pods(request))
  const slow = await status(server, '--timeout', '1s')
  t.same([slow.code, slow.lines], [1, ['NotAnswered *']])
  server.fault = () => 'hang'
  const silent = await runCli(['status', '--kubeconfig', server.kubeconfig, '--timeout', '1s'])
  t.equal(silent.code, 3)
  t.match(silent.stderr, /no answer within 1s/)
  server.fault = undefined
  server.tokens.add('another')
  const stranger = await runCli(['status', '--kubeconfig', server.kubeconfig])
  t.equal(stranger.code, 3)
  t.match(stranger.stderr, /rejected these credentials/)
})

t.test('a cluster without Sealane is not one that is down', async (t) => {
  const server = await fakeApiServer(t)
  for (const { apiVersion, plural } of Object.values(KIND_PLACES)) {
    if (apiVersion === 'sealane.io/v1alpha1') server.missing.add(`${apiVersion}/${plural}`)
  }
  const { code, stderr } = await runCli(['status', '--kubeconfig', server.kubeconfig])
  t.equal(code, 3)
  t.match(
    stderr,
    /: Sealane is not installed\njoin this cluster first: sealane join --kubeconfig \S+ --token-file FILE\n$/,
  )
})

t.test('one whose CRDs somebody deleted is', async (t) => {
  const server = await clusterWith(t)
  for (const { apiVersion, plural } of Object.values(KIND_PLACES)) {
    if (apiVersion === 'sealane.io/v1alpha1') server.missing.add(`${apiVersion}/${plural}`)
  }
  const { code, stdout } = await runCli(['status', '--kubeconfig', server.kubeconfig, '-o', 'json'])
  t.equal(code, 2)
  const { problems } = JSON.parse(stdout) as { readonly problems: readonly { readonly reason: string }[] }
  t.equal(problems[0]?.reason, 'KindMissing')
})
