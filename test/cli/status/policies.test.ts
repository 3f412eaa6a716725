/** The facts that `sealane status` reads from NetworkPolicies, and from the Services that these may concern. */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { kubeFacts } from '../../../cli/status/kube-facts.ts'
import type { Fact } from '../../../explain/facts/fact.ts'
import type { DynamicObject, ListInit } from '../../../kubeapi/kube/dynamic-client.ts'
import type { FakeApiServer } from '../../support/fake-api-server.ts'
import { type ObjectsByKind, healthyObjects } from '../../support/objects/member-facts.ts'
import { serviceObject } from '../../support/objects/service-objects.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { runCli } from '../run-cli.ts'
import { clusterWith, pods } from './cluster-with.ts'

const deny = (namespace: string, name = 'deny'): object => ({
  apiVersion: 'networking.k8s.io/v1',
  kind: 'NetworkPolicy',
  metadata: { name, namespace, annotations: { note: 'x'.repeat(1000) } },
  spec: { podSelector: {}, policyTypes: ['Ingress'] },
})
const service = (name: string, namespace = 'shop'): object =>
  serviceObject({ name, namespace }, { selector: { app: name }, ports: [{ port: 80 }] })

function objects(...policies: readonly object[]): ObjectsByKind {
  const { NetworkPolicy: own = [], ...others } = healthyObjects()
  return { ...others, NetworkPolicy: [...own, ...policies], Service: [service('web0'), service('other')] }
}

async function linesOf(args: readonly string[]): Promise<readonly [code: number, lines: readonly string[]]> {
  const { code, stdout } = await runCli(['status', ...args, '-o', 'json'])
  const { problems } = JSON.parse(stdout) as {
    readonly problems: readonly { readonly severity: string; readonly reason: string; readonly seen: string }[]
  }
  return [code, problems.map(({ severity, reason, seen }) => `${severity} ${reason}: ${seen}`)]
}

const SHUT =
  'degraded PolicyKeepsOut: NetworkPolicy shop/deny selects its pods, but no policy allows ingress from another'
const serviceLists = ({ requests }: FakeApiServer): readonly string[] =>
  requests.filter((line) => line.includes('/services?'))

t.test('an exported service that is shut is named, in a bundle too', async (t) => {
  const server = await clusterWith(t, objects(deny('shop')))
  const [code, lines] = await linesOf(['--kubeconfig', server.kubeconfig])
  t.same([code, lines.length], [1, 1])
  t.ok(lines[0]?.startsWith(SHUT), String(lines[0]))
  t.same(serviceLists(server), ['GET /api/v1/namespaces/shop/services?limit=500'], 'where it matters, and once')
  const file = join(temporaryFolder(t), 'c1.tar.gz')
  const gathered = await runCli(['gather', '--kubeconfig', server.kubeconfig, '-o', file])
  t.equal(gathered.code, 0, gathered.stderr)
  const [, kept] = await linesOf(['--bundle', file])
  t.ok(
    kept.some((line) => line.startsWith(SHUT)),
    kept.join('\n'),
  )
})

t.test('no Service is asked for where no policy is, nor where nothing is exported', async (t) => {
  const server = await clusterWith(t, objects(deny('elsewhere')))
  t.same(await linesOf(['--kubeconfig', server.kubeconfig]), [0, []])
  t.same(serviceLists(server), [])
})

t.test('what may not be read is a notice that names the right', async (t) => {
  const refused = async (t: Test, plural: string): Promise<unknown> => {
    const server = await clusterWith(t, objects(deny('shop')))
    server.fault = (request) =>
      request.path.endsWith(`/${plural}`)
        ? { status: 403, body: { kind: 'Status', code: 403, reason: 'Forbidden', message: 'no' } }
        : pods(request)
    const [code, lines] = await linesOf(['--kubeconfig', server.kubeconfig])
    return [code, lines.length, lines[0]?.replace(/: .*; the right/, ': the right')]
  }
  const right = 'notice RightMissing: the right to list'
  t.same(await refused(t, 'services'), [0, 1, `${right} services in namespace shop is needed`])
  t.same(await refused(t, 'networkpolicies'), [0, 1, `${right} networkpolicies.networking.k8s.io is needed`])
})

t.test('a list that hangs is a notice, and no Service is asked for', async (t) => {
  const server = await clusterWith(t, objects(deny('shop')))
  server.fault = (request) => (request.path.endsWith('/networkpolicies') ? 'hang' : pods(request))
  t.same(await linesOf(['--kubeconfig', server.kubeconfig, '--timeout', '1s']), [
    0,
    ['notice NotAnswered: no answer within 1s'],
  ])
  t.same(serviceLists(server), [])
})

/** Returns the facts of a reader that serves these lists. */
async function factsOf(lists: Readonly<Record<string, readonly object[]>>) {
  const asked: string[] = []
  const reader = {
    knows: () => Promise.resolve(true),
    readPod: () => Promise.reject(new Error('no pod')),
    listPicked: <T>({ kind, namespace, most = Infinity }: ListInit, pick: (object: DynamicObject) => T) => {
      asked.push(`${kind} ${namespace ?? '*'}`)
      const all = (lists[kind] ?? []) as readonly DynamicObject[]
      const here = all.filter(({ metadata }) => namespace === undefined || metadata.namespace === namespace)
      return Promise.resolve(here.slice(0, most).map(pick))
    },
  }
  const signal = new AbortController().signal
  const facts = await kubeFacts(reader, { title: 'test', timeoutMs: 5000, signal })
  const of = (kind: string): readonly Fact[] => facts.filter((fact) => fact.t === 'objects' && fact.kind === kind)
  return { asked: asked.filter((line) => line.startsWith('Service ')), facts, of }
}

const exported = (name: string, namespace: string): object => ({ metadata: { name, namespace } })

t.test('only what a check reads is kept', async (t) => {
  const { of } = await factsOf({
    NetworkPolicy: ['sealane-system', 'shop', 'imports', 'other'].map((namespace) => deny(namespace)),
    ServiceExport: [exported('web', 'shop')],
    ServiceImport: [exported('db', 'imports')],
    Service: [service('web'), service('db')],
  })
  const [policies, services] = ['NetworkPolicy', 'Service'].map((kind) => of(kind))
  const spec = { podSelector: {}, policyTypes: ['Ingress'] }
  t.match(policies, [{ items: { length: 3 } }])
  t.strictSame(
    policies?.flatMap((fact) => (fact.t === 'objects' ? fact.items : [])),
    ['sealane-system', 'shop', 'imports'].map((namespace) => ({ metadata: { name: 'deny', namespace }, spec })),
  )
  t.strictSame(
    services?.flatMap((fact) => (fact.t === 'objects' ? fact.items : [])),
    [
      {
        metadata: { name: 'web', namespace: 'shop' },
        spec: { selector: { app: 'web' }, ports: [{ port: 80 }] },
      },
    ],
  )
})

t.test('many namespaces are one list', async (t) => {
  for (const [count, lists] of [
    [16, 16],
    [17, 1],
  ] as const) {
    const namespaces = Array.from({ length: count }, (_, i) => `ns${i}`)
    const { asked, of } = await factsOf({
      NetworkPolicy: namespaces.map((namespace) => deny(namespace)),
      ServiceExport: namespaces.map((namespace) => exported('web', namespace)),
      Service: [...namespaces, 'other'].map((namespace) => service('web', namespace)),
    })
    t.equal(asked.length, lists)
    const items = of('Service').flatMap((fact) => (fact.t === 'objects' ? fact.items : []))
    t.equal(items.length, count, 'those that are exported')
  }
})

t.test('of more policies than anybody has, nothing is said', async (t) => {
  const many = (count: number) => Array.from({ length: count }, (_, i) => deny('shop', `p${i}`))
  const lists = { ServiceExport: [exported('web', 'shop')], Service: [service('web')] }
  const whole = await factsOf({ ...lists, NetworkPolicy: many(10_000) })
  t.match(whole.of('NetworkPolicy'), [{ items: { length: 10_000 } }])
  const { of, facts, asked } = await factsOf({ ...lists, NetworkPolicy: many(10_001) })
  t.same([of('NetworkPolicy'), asked], [[], []])
  t.match(
    facts.find((fact) => fact.t === 'unanswered'),
    { what: 'NetworkPolicy', reason: 'NotAnswered', message: /more than 10000/, needed: false },
  )
})
