/**
 * Five joined clusters: c1 calls a service of c2, c3 and c4 a hundred times a second while its policies change, a
 * cluster is drained or unreachable, and it gets pods of its own. No call fails but those that were under way to the
 * cluster that was cut off.
 */
import { execFileSync } from 'node:child_process'
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import type { Site } from '../support/callers.ts'
import type { Json, KubeObject } from '../support/kube-request.ts'
import { sealane } from '../support/sealane-command.ts'
import { awaitImport, exportService } from '../support/service-imports.ts'
import { SteadyCalls } from './steady-calls.ts'

export interface PolicyWorld {
  /** The kubeconfig of the cluster with the broker. */
  readonly hub: string
  readonly c1: Site
  readonly exporters: readonly Site[]
  /** The network namespace of the one node of a cluster. */
  readonly netnsOf: (cluster: string) => string
  readonly say: (line: string) => void
}

const NAMESPACE = 'demo'
const NAME = 'web'
const POLICY = `/apis/sealane.io/v1alpha1/namespaces/${NAMESPACE}/trafficpolicies`
const LABELS = { app: NAME }
const SCALED = 10

export async function policyStory(t: Test, world: PolicyWorld): Promise<void> {
  const { c1, exporters, netnsOf, say } = world
  const names = exporters.map(({ name }) => name)
  const [first = '', second = '', third = ''] = names
  // A policy that exists before its service counts from the first call on.
  await setPolicy(c1, [{ clusters: [third] }, { any: {} }])
  await Promise.all(exporters.map((site) => serve(site, 1)))
  await Promise.all(exporters.map((site) => exportService(site, NAMESPACE, NAME)))
  const ip = await eventually(async () => (await awaitImport(c1, NAMESPACE, NAME)).spec.ips?.[0])
  const calls = await SteadyCalls.start(c1, NAMESPACE, netnsOf(c1.name), ip)
  const stops = [(): Promise<void> => calls.stop()]
  try {
    await calls.settled([third])
    say('canary')
    await canary(t, calls, { c1, stays: first, fresh: second, other: third })
    say('affinity')
    await affinity(t, calls, { c1, names })
    say('drain')
    await removePolicy(c1)
    await calls.settled(names)
    await sealane(['cluster', 'drain', second, '--kubeconfig', world.hub])
    await calls.settled([first, third])
    await sealane(['cluster', 'undrain', second, '--kubeconfig', world.hub])
    await calls.settled(names)
    t.strictSame(calls.failures(names), [], 'no call has failed')
    say('three importers')
    await importers(t, calls, world, ip)
    say('region outage')
    await outage(t, calls, world)
    say('scale-up')
    await scaleUp(t, calls, world)
  } finally {
    for (const stop of stops) await stop()
    await removePolicy(c1)
  }
}

interface Canary {
  readonly c1: Site
  readonly stays: string
  readonly fresh: string
  readonly other: string
}

/** 1, 10, 50 and 100 % and back, as `kubectl apply` writes it; what is applied again changes nothing. */
async function canary(t: Test, calls: SteadyCalls, { c1, stays, fresh, other }: Canary): Promise<void> {
  for (const percent of [1, 10, 50, 100, 0]) {
    const order = [{ any: {}, weights: { [stays]: 100 - percent, [fresh]: percent, [other]: 0 } }]
    await setPolicy(c1, order)
    await calls.settled(percent === 100 ? [fresh] : percent === 0 ? [stays] : [stays, fresh])
    const seen = await calls.percent(fresh, 400)
    // The standard deviation of 400 draws of a half is 2.5 %.
    t.ok(Math.abs(seen - percent) <= (percent % 100 === 0 ? 0 : 10), `${percent} %: ${seen} %`)
  }
  const before = await c1.api.get(`${POLICY}/${NAME}`)
  await setPolicy(c1, [{ any: {}, weights: { [stays]: 100, [fresh]: 0, [other]: 0 } }])
  const after = await c1.api.get(`${POLICY}/${NAME}`)
  t.equal(after.metadata['generation'], before.metadata['generation'], 'applied again, it is the same')
  await setPolicy(c1, [{ clusters: [other] }], 'later')
  const conflict = await eventually(async () => {
    const { status } = await c1.api.get<PolicyObject>(`${POLICY}/later`)
    return status?.conditions?.find(({ reason }) => reason === 'TrafficPolicyConflict')
  })
  t.match(conflict.message, NAME, 'a second policy for the service says which one is older')
  await calls.settled([stays])
  await removePolicy(c1, 'later')
}

interface PolicyObject extends KubeObject {
  readonly status?: { readonly conditions?: readonly { readonly reason: string; readonly message: string }[] }
}

async function affinity(
  t: Test,
  calls: SteadyCalls,
  { c1, names }: { readonly c1: Site; readonly names: readonly string[] },
): Promise<void> {
  const sessionAffinity = { clientIP: { timeoutSeconds: 600 } }
  await setPolicy(c1, [{ any: {} }], NAME, { sessionAffinity })
  const kept = await eventually(async () => {
    const seen = new Set((await calls.next(100)).map(({ pod }) => pod))
    return seen.size === 1 ? [...seen] : undefined
  })
  const weights = Object.fromEntries(names.map((name, i) => [name, 100 * (i + 1)]))
  await setPolicy(c1, [{ any: {}, weights }], NAME, { sessionAffinity })
  const after = new Set((await calls.next(200)).map(({ pod }) => pod))
  t.strictSame([...after], kept, 'a client stays at its pod when weights change')
}

/** Each cluster follows its own policy of the same service. */
async function importers(t: Test, calls: SteadyCalls, { exporters, netnsOf, c1 }: PolicyWorld, ip: string) {
  const [second, third] = exporters.slice(1)
  const [a = '', b = '', c = ''] = exporters.map(({ name }) => name)
  if (second === undefined || third === undefined) throw new Error('expected three exporters')
  const rows = [
    { site: c1, calls, weights: { [a]: 80, [b]: 20, [c]: 0 } },
    {
      site: second,
      calls: await SteadyCalls.start(second, NAMESPACE, netnsOf(second.name), ip),
      weights: { [a]: 0, [b]: 0, [c]: 9 },
    },
    {
      site: third,
      calls: await SteadyCalls.start(third, NAMESPACE, netnsOf(third.name), ip),
      weights: { [a]: 5, [b]: 5, [c]: 0 },
    },
  ]
  try {
    await Promise.all(rows.map(({ site, weights }) => setPolicy(site, [{ any: {}, weights }])))
    for (const { site, calls: some, weights } of rows) {
      const total = Object.values(weights).reduce((sum, weight) => sum + weight, 0)
      await some.settled(Object.keys(weights).filter((name) => (weights[name] ?? 0) > 0))
      const seen = await some.next(400)
      for (const [name, weight] of Object.entries(weights)) {
        const percent = seen.filter(({ cluster }) => cluster === name).length / 4
        const want = (100 * weight) / total
        t.ok(Math.abs(percent - want) <= (want % 100 === 0 ? 0 : 12), `${site.name} calls ${name}: ${percent} %`)
      }
      t.strictSame(some.failures([a, b, c]), [], `${site.name}: no call has failed`)
    }
  } finally {
    await Promise.all(rows.slice(1).flatMap(({ site, calls: some }) => [some.stop(), removePolicy(site)]))
  }
}

/** All links of the first exporter are cut: new calls go to the next tier, and come back without a failure. */
async function outage(t: Test, calls: SteadyCalls, { c1, exporters, netnsOf }: PolicyWorld): Promise<void> {
  const [first = '', second = ''] = exporters.map(({ name }) => name)
  await setPolicy(c1, [{ clusters: [first] }, { clusters: [second] }, { any: {} }])
  await calls.settled([first])
  const cutAt = Date.now()
  cutLinks(netnsOf(first))
  await calls.settled([second])
  const next = calls.since(cutAt).find(({ cluster }) => cluster === second)
  const afterMs = (next?.at ?? NaN) - cutAt
  t.comment(`the next tier answered a call that began ${afterMs} ms after the cut`)
  t.ok(afterMs < 3000, 'the next tier answers')
  const later = calls.since((next?.at ?? 0) + 500).filter(({ cluster }) => cluster !== second)
  t.strictSame(later, [], 'and then all calls')
  const joinedAt = Date.now()
  joinLinks(netnsOf(first))
  await calls.settled([first])
  const failed = calls.since(joinedAt).filter(({ cluster }) => cluster !== first && cluster !== second)
  t.strictSame(failed, [], 'no call fails on the way back')
}

/** From no pod to ten at once: no pod has more than three times its fair share in any second. */
async function scaleUp(t: Test, calls: SteadyCalls, { c1, exporters }: PolicyWorld): Promise<void> {
  const names = [c1.name, ...exporters.map(({ name }) => name)]
  await serve(c1, 0)
  await exportService(c1, NAMESPACE, NAME)
  await setPolicy(c1, [{ local: {} }, { any: {} }], NAME, { spillBelowPercent: 50 })
  await calls.settled(exporters.map(({ name }) => name))
  const began = Date.now()
  await serve(c1, SCALED)
  await calls.settled([c1.name])
  const seen = calls.since(began)
  const last = seen.at(-1)?.at ?? began
  for (let at = began; at + 1000 <= last; at += 1000) {
    const some = seen.filter((call) => call.at >= at && call.at < at + 1000)
    const local = some.filter(({ cluster }) => cluster === c1.name)
    const pods = Object.values(Object.groupBy(local, ({ pod }) => pod)).map((of) => of?.length ?? 0)
    const most = (3 * some.length) / (pods.length + exporters.length)
    // Each call draws by itself, so one of ten is above its share of a few calls by chance.
    t.ok(Math.max(0, ...pods) <= most + 3 * Math.sqrt(most), `${pods.length} pods: ${pods.join(' ')} of ${some.length}`)
  }
  t.strictSame(
    calls.since(began).filter(({ cluster }) => !names.includes(cluster)),
    [],
    'no call has failed',
  )
}

async function setPolicy(site: Site, order: readonly object[], name = NAME, more: Json = {}): Promise<void> {
  await site.api.apply(`${POLICY}/${name}`, {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'TrafficPolicy',
    metadata: { name, namespace: NAMESPACE },
    spec: { targetRefs: [{ name: NAME }], order, ...more },
  })
}

async function removePolicy(site: Site, name = NAME): Promise<void> {
  await site.api.delete(`${POLICY}/${name}`)
}

// It answers with the name of the cluster and its own address. What it has not read when it closes becomes a reset.
const SERVER =
  'use Socket; $SIG{PIPE} = "IGNORE"; socket(S, PF_INET, SOCK_STREAM, 0) && setsockopt(S, SOL_SOCKET, SO_REUSEADDR, 1) ' +
  '&& bind(S, sockaddr_in(42, INADDR_ANY)) && listen(S, 128) or die $!; ' +
  'while (1) { accept(C, S) or next; sysread(C, my $asked, 64); my (undef, $at) = sockaddr_in(getsockname(C)); ' +
  'syswrite(C, "$ARGV[0] " . inet_ntoa($at) . "\\n"); close C }'

/** Makes or scales the pods that answer, and their Service. */
async function serve(site: Site, replicas: number): Promise<void> {
  const container = { name: 'web', image: 'alpine/socat:1.7.4.4', command: ['perl', '-e', SERVER, site.name] }
  await site.api.apply(`/apis/apps/v1/namespaces/${NAMESPACE}/deployments/${NAME}`, {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: NAME },
    spec: {
      replicas,
      selector: { matchLabels: LABELS },
      template: { metadata: { labels: LABELS }, spec: { terminationGracePeriodSeconds: 0, containers: [container] } },
    },
  })
  await site.api.apply(`/api/v1/namespaces/${NAMESPACE}/services/${NAME}`, {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: NAME },
    spec: { selector: LABELS, ports: [{ name: 'tcp', port: 42, protocol: 'TCP' }] },
  })
}

const CUT = 'test_cut'

function cutLinks(netns: string): void {
  const chain = (hook: string, match: string): string =>
    `chain ${hook} {\ntype filter hook ${hook} priority -400;\nudp ${match} 4500 drop\n}`
  const table = `table inet ${CUT} {\n${chain('input', 'dport')}\n${chain('output', 'sport')}\n}\n`
  execFileSync('ip', ['netns', 'exec', netns, 'nft', '-f', '-'], { input: table })
}

function joinLinks(netns: string): void {
  execFileSync('ip', ['netns', 'exec', netns, 'nft', 'delete', 'table', 'inet', CUT])
}
