/**
 * The next join repairs a failed first attempt, and the results of accidents: on the third of three clusters, while the
 * two others keep working as if nothing had happened.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createJoinToken } from '../../protocol/identity/token.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { CLUSTER_ROUNDS } from './support/cluster-faults.ts'
import { causesNamed } from './support/diagnosed.ts'
import { joinClusters } from './support/joined-clusters.ts'
import type { KubeObject, KubeRequest } from './support/kube-request.ts'
import { lastWords } from './support/pod-logs.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'
import { type CommandResult, sealane, trySealane } from './support/sealane-command.ts'
import {
  type ClusterRow,
  FLAT,
  SEALANE_IMAGE,
  type TestCluster,
  type TestClusters,
  startClusters,
} from './support/two-clusters.ts'

t.setTimeout(1_500_000)

const ROWS: readonly ClusterRow[] = [
  ...FLAT,
  { name: 'c3', podCIDR: '10.62.0.0/16', serviceCIDR: '10.63.0.0/16', nodes: ['c3n1'] },
]
const SYSTEM = 'sealane-system'
const OURS = '/apis/sealane.io/v1alpha1'
const SECRET = `/api/v1/namespaces/${SYSTEM}/secrets/sealane-identity`

interface World {
  readonly directory: string
  readonly hub: TestCluster
  readonly third: TestCluster
}

t.test('the next join repairs', { skip: kubeletMissing() ?? false, timeout: 1_500_000 }, async (t) => {
  const world = await startWorld(t)
  const before = await partsOf(world.hub)
  await t.test('a wrong image, a wrong broker, a token that has ended', (t) => badTries(t, world))
  await t.test('CRDs that somebody deleted', (t) => deletedCrds(t, world))
  await t.test('what no join mends is named', (t) => named(t, world))
  await t.test('an identity that somebody deleted', (t) => deletedSecret(t, world))
  await t.test('a member that was evicted', (t) => evicted(t, world))
  await t.test('a namespace that somebody deleted', (t) => deletedNamespace(t, world))
  t.strictSame(await partsOf(world.hub), before, 'the parts of the others ran on')
  t.equal(await laneTo(world.hub, 'c2'), 'up', 'and so did the lane between them')
})

async function startWorld(t: Test): Promise<World> {
  const directory = temporaryFolder(t)
  const clusters: TestClusters = await startClusters({ directory, rows: ROWS })
  t.teardown(() => clusters.stop())
  const [hub, second, third] = clusters.clusters
  if (hub === undefined || second === undefined || third === undefined) throw new Error('three clusters were asked for')
  await joinClusters({ ...clusters, clusters: [hub, second] }, directory, (line) => t.comment(line))
  return { directory, hub, third }
}

const at = ({ plane }: TestCluster): readonly string[] => ['--kubeconfig', plane.kubeconfig]

/** Joins the third cluster with only these words. */
function joinThird({ third }: World, ...more: readonly string[]): Promise<CommandResult> {
  return trySealane(['join', ...at(third), '--yes', ...more])
}

async function newToken({ hub, directory }: World, ...more: readonly string[]): Promise<readonly string[]> {
  const { stdout } = await sealane(['token', 'create', ...at(hub), ...more])
  return tokenFile(directory, /sealane1\.\S+/.exec(stdout)?.[0] ?? '')
}

function tokenFile(directory: string, text: string): readonly string[] {
  const file = join(directory, 'token')
  writeFileSync(file, text, { mode: 0o600 })
  return ['--token-file', file]
}

/** Checks that `sealane diagnose` of the third cluster names these causes. */
function isNamed(t: Test, { third }: World, causes: readonly string[], say: string): Promise<void> {
  return causesNamed(t, third.plane.kubeconfig, causes, say)
}

async function named(t: Test, world: World): Promise<void> {
  await isNamed(t, world, [], 'all is well')
  for (const round of CLUSTER_ROUNDS) {
    const undo: (() => Promise<void>)[] = []
    for (const { inject } of round) undo.push(await inject(world.third.plane.api, join(world.directory, 'etcd')))
    const say = round.map(({ name }) => name).join('; ')
    await isNamed(
      t,
      world,
      round.map((fault) => fault.named),
      say,
    )
    for (const one of undo) await one()
    await isNamed(t, world, [], `${say}, no more`)
  }
}

const JOINED = 'c3 has joined with gateway c3n1; it reaches c1, c2\n'

function isJoined(t: Test, { code, stdout, stderr, ms }: CommandResult, say: string): void {
  t.equal(code, 0, code === 0 ? say : stderr)
  t.equal(stdout, JOINED, say)
  t.comment(`${say}: ${(ms / 1000).toFixed(1)} s`)
}

interface PodObject extends KubeObject {
  readonly status?: { readonly containerStatuses?: readonly { readonly restartCount: number }[] }
}

/** Each of our pods that runs there, with its number of restarts. */
async function partsOf({ plane }: TestCluster): Promise<readonly string[]> {
  const pods = await plane.api.list<PodObject>(`/api/v1/namespaces/${SYSTEM}/pods`)
  return pods
    .map(({ metadata, status }) => `${metadata.name} ${status?.containerStatuses?.[0]?.restartCount ?? 0}`)
    .sort()
}

interface GatewayObject extends KubeObject {
  readonly status?: { readonly connections?: readonly { readonly cluster: string; readonly state: string }[] }
}

async function laneTo({ plane }: TestCluster, cluster: string): Promise<string | undefined> {
  const [gateway] = await plane.api.list<GatewayObject>(`${OURS}/gateways`)
  return gateway?.status?.connections?.find((one) => one.cluster === cluster)?.state
}

async function badTries(t: Test, world: World): Promise<void> {
  const { third, directory } = world
  const own = ['--cluster-id', 'c3', '--pod-cidr', third.row.podCIDR, '--timeout', '12s']
  const nowhere = { addresses: ['192.0.2.250:7443'], caPin: 'a'.repeat(64), clusterset: 'default' }
  const lasting = (ms: number): readonly string[] =>
    tokenFile(directory, createJoinToken({ ...nowhere, expiresAtMs: Date.now() + ms }).text())
  const wrong = lasting(300_000)
  const first = await joinThird(world, ...own, ...wrong, '--image', 'localhost/nothing:there', '--force')
  t.equal(first.code, 1)
  t.match(first.stderr, /the broker to accept this cluster.*: agent: pod sealane-agent-.*localhost\/nothing:there/)

  const parts = [
    'Deployment sealane-agent',
    'Deployment sealane-dns',
    'DaemonSet sealane-gateway',
    'DaemonSet sealane-routeagent',
  ]
  await isNamed(
    t,
    world,
    parts.map((part) => `PartNotReady ${part}`),
    'no node has the image',
  )

  const second = await joinThird(world, '--timeout', '30s', ...wrong, '--image', SEALANE_IMAGE)
  t.equal(second.code, 1)
  t.match(
    second.stderr,
    /^c3 is already installed, but not a member yet: upgrade from image localhost\/nothing:there to /m,
  )
  t.match(
    second.stderr,
    /^ {2}~ DaemonSet sealane-system\/sealane-routeagent\n {6}.*nothing:there" -> "localhost\/sealane:test"$/m,
  )
  t.match(second.stderr, /: agent: broker at 192\.0\.2\.250:7443: /)

  // The token expires while the agent has it and waits for that broker.
  const ended = await joinThird(world, '--timeout', '60s', ...lasting(15_000))
  t.equal(ended.code, 1)
  t.match(ended.stderr, /join token: .*expired.*\nfix that, or create a new token/)
  await isNamed(t, world, ['TokenExpired Membership self'], 'the token has ended')

  isJoined(t, await joinThird(world, ...(await newToken(world))), 'a new token, and nothing else said')
  await eventually(async () => (await partsOf(third)).length === 6, {
    deadlineMs: 60_000,
    say: 'the broken pods are gone',
  })
}

async function namesOf({ api }: { readonly api: KubeRequest }, plural: string): Promise<string> {
  const found = await api.list(`${OURS}/${plural}`).catch(() => [])
  return found
    .map(({ metadata }) => metadata.name)
    .sort()
    .join(' ')
}

/** Those without which a member cannot work. */
const OWN_CRDS = ['clusters', 'endpoints', 'gateways', 'memberships', 'routeagents'] as const

async function deletedCrds(t: Test, world: World): Promise<void> {
  const { plane } = world.third
  const pods = await partsOf(world.third)
  const names = async (): Promise<readonly string[]> => await Promise.all(OWN_CRDS.map((one) => namesOf(plane, one)))
  const before = await names()
  t.strictSame(before.slice(0, 2), ['c1 c2 c3', 'c1.c1n1-lane0 c2.c2n1-lane0 c3.c3n1-lane0'])
  const crds = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
  for (const one of OWN_CRDS) await plane.api.delete(`${crds}/${one}.sealane.io`)
  await eventually(
    async () => {
      const left = new Set((await plane.api.list(crds)).map(({ metadata }) => metadata.name))
      return OWN_CRDS.every((one) => !left.has(`${one}.sealane.io`))
    },
    {
      deadlineMs: 60_000,
      say: 'the CRDs are gone',
    },
  )
  const kinds = ['Cluster', 'Endpoint', 'Gateway', 'Membership', 'RouteAgent']
  await isNamed(
    t,
    world,
    kinds.map((kind) => `KindMissing ${kind}`),
    'CRDs are gone',
  )
  const done = await joinThird(world)
  t.match(done.stderr, /^ {2}\+ CustomResourceDefinition clusters\.sealane\.io {2}\(it does not exist\)$/m)
  isJoined(t, done, 'CRDs are back')
  if (done.stdout !== JOINED) t.comment(await lastWords(plane.api, SYSTEM, 30))
  await eventually(async () => (await names()).join('; ') === before.join('; '), {
    deadlineMs: 60_000,
    say: 'every object is there again',
  })
  t.strictSame(await partsOf(world.third), pods, 'no part took itself out, and none was started anew')
}

async function deletedSecret(t: Test, world: World): Promise<void> {
  const { api } = world.third.plane
  const { data } = await api.get<{ data: object }>(SECRET)
  const pods = await partsOf(world.third)
  await api.delete(SECRET)
  const done = await joinThird(world)
  // The agent restores it by itself, if it is faster than the join.
  const isMade = done.stderr.includes('Secret sealane-system/sealane-identity was missing: an empty one was created')
  t.comment(isMade ? 'the join made an empty one' : 'the agent was faster')
  isJoined(t, done, 'the identity is back')
  t.strictSame((await api.get<{ data: object }>(SECRET)).data, data, 'it is the same')
  t.strictSame(await partsOf(world.third), pods, 'no part was started anew')
}

/** A join without a token is refused at once, and says which one is needed. */
async function needsToken(t: Test, world: World, why: RegExp): Promise<void> {
  const refused = await joinThird(world, '--image', SEALANE_IMAGE)
  t.equal(refused.code, 1)
  t.match(refused.stderr, why)
  t.match(
    refused.stderr,
    /: a new token for this id is needed\non the broker: sealane token create --cluster-id c3; then: sealane join /,
  )
  t.notMatch(refused.stderr, /^ {2}(created|changed) /m, 'nothing is done')
}

async function evicted(t: Test, world: World): Promise<void> {
  const { hub, third } = world
  await sealane(['cluster', 'evict', 'c3', ...at(hub), '--force'])
  const noted = async (): Promise<boolean> =>
    'sealane.io/join-problem' in ((await third.plane.api.get(SECRET)).metadata.annotations ?? {})
  await eventually(noted, { deadlineMs: 60_000, say: 'the agent has heard it' })
  await isNamed(t, world, ['MemberEvicted'], 'evicted')
  await needsToken(t, world, /has joined as c3, and the broker refuses its identity: .*evicted/)
  const done = await joinThird(world, ...(await newToken(world)))
  t.match(done.stderr, /^joined earlier as c3; the broker refuses its identity: /m)
  isJoined(t, done, 'taken in again')
}

async function deletedNamespace(t: Test, world: World): Promise<void> {
  const { third } = world
  await third.plane.api.delete(`/api/v1/namespaces/${SYSTEM}`)
  await needsToken(t, world, /joined earlier as c3, but Secret sealane-system\/sealane-identity has no identity/)
  const own = ['--pod-cidr', third.row.podCIDR, '--image', SEALANE_IMAGE]
  // This token was used when the cluster was let in again.
  const used = await joinThird(world, ...own, '--token-file', join(world.directory, 'token'))
  t.equal(used.code, 1)
  await isNamed(t, world, ['TokenUsed Membership self'], 'the token was used')
  const refused = await joinThird(world, ...own, ...(await newToken(world)))
  t.equal(refused.code, 1)
  t.match(refused.stderr, /cluster: "c3" is already a member .*"sealane token create --cluster-id c3"/)
  await isNamed(t, world, ['ClusterIdTaken Membership self'], 'the id is taken')
  const restored = await joinThird(world, '--broker-kubeconfig', world.hub.plane.kubeconfig)
  t.match(restored.stderr, /has no identity: the broker issues a new one for c3$/m)
  isJoined(t, restored, 'the same id again, with the rights of the operator and no token')
}
