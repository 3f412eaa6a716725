/**
 * Operation after the join, on three clusters: a hub with the broker, and two members. A command that only reads uses
 * the intended cluster and always ends; the broker is not removed while it has members, keeps its data, is restored
 * from a backup, and moves its state (broker/move-stories.ts); leaving asks for confirmation.
 */
import { statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { LEAVE_REQUESTED_ANNOTATION } from '../../model/model.ts'
import { moveStories } from './broker/move-stories.ts'
import type { KubeObject } from './support/kube-request.ts'
import { lastWords } from './support/pod-logs.ts'
import { type CommandResult, sealane, trySealane } from './support/sealane-command.ts'
import { type ClusterRow, SEALANE_IMAGE, type TestCluster, startClusters } from './support/two-clusters.ts'
import { namespaceObject, serviceObject } from '../support/objects/service-objects.ts'

t.setTimeout(1_500_000)

const ROWS: readonly ClusterRow[] = [
  { name: 'hub', podCIDR: '10.42.0.0/16', serviceCIDR: '10.43.0.0/16', nodes: ['h1'] },
  { name: 'c2', podCIDR: '10.52.0.0/16', serviceCIDR: '10.53.0.0/16', nodes: ['c2n1'] },
  { name: 'c3', podCIDR: '10.62.0.0/16', serviceCIDR: '10.63.0.0/16', nodes: ['c3n1'] },
]
const IMAGE = ['--image', SEALANE_IMAGE]
const BROKER = '/api/v1/namespaces/sealane-broker'
const CLAIM = `${BROKER}/persistentvolumeclaims/sealane-broker-data`
const CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'

interface World {
  readonly directory: string
  readonly hub: TestCluster
  readonly c2: TestCluster
  readonly c3: TestCluster
}

const at = ({ plane }: TestCluster): readonly string[] => ['--kubeconfig', plane.kubeconfig]

t.test('leaving, and looking before it', { timeout: 1_500_000 }, async (t) => {
  const world = await joined(t)
  await t.test('looking', (t) => looking(t, world))
  await t.test('nobody is asked: nothing is done', (t) => notAsked(t, world))
  await t.test('a broker in use, its data, and a backup', (t) => broker(t, world))
  await t.test('an API server that has stopped', (t) => stopped(t, world))
  const { hub, directory } = world
  await t.test('the state of the broker moves', (t) => moveStories(t, { hub, directory, members: ['c2', 'c3'] }))
  await t.test('a leave that the broker does not hear of', (t) => brokenLeave(t, world))
  await t.test('leaving, twice', (t) => leaving(t, world))
})

async function joined(t: Test): Promise<World> {
  const directory = temporaryFolder(t)
  const clusters = await startClusters({ directory, rows: ROWS })
  t.teardown(() => clusters.stop())
  const [hub, c2, c3] = clusters.clusters
  if (hub === undefined || c2 === undefined || c3 === undefined) throw new Error('three clusters were asked for')
  await sealane(['broker', 'deploy', ...at(hub), '--service-type', 'NodePort', ...IMAGE])
  const token = join(directory, 'token')
  const made = await sealane(['token', 'create', ...at(hub), '--uses', '2', '-o', 'json'])
  writeFileSync(token, (JSON.parse(made.stdout) as { token: string }).token, { mode: 0o600 })
  const joinMember = async (member: TestCluster): Promise<void> => {
    const { row, nodes } = member
    // The address at which others call is configured; other tests cover what the broker observes through a NodePort.
    const gateway = `${row.nodes[0] ?? ''}=${nodes[0]?.address ?? ''}`
    const words = ['join', ...at(member), '--cluster-id', row.name, '--pod-cidr', row.podCIDR, '--gateway', gateway]
    await sealane([...words, '--yes', '--token-file', token, ...IMAGE])
  }
  await Promise.all([c2, c3].map(joinMember))
  await exported(world3(directory, hub, c2, c3), 'first')
  return world3(directory, hub, c2, c3)
}

function world3(directory: string, hub: TestCluster, c2: TestCluster, c3: TestCluster): World {
  return { directory, hub, c2, c3 }
}

/** Exports a service from c2 and waits until it arrives in c3, which shows that the broker works and knows both. */
async function exported({ c2, c3 }: World, name: string): Promise<void> {
  const ports = [{ name: 'http', port: 80, protocol: 'TCP' as const }]
  for (const { plane } of [c2, c3]) {
    await plane.api.apply('/api/v1/namespaces/demo', namespaceObject('demo'))
  }
  const service = serviceObject({ name, namespace: 'demo' }, { ports })
  const spec = { ...service.spec, selector: { app: name } }
  await c2.plane.api.apply(`/api/v1/namespaces/demo/services/${name}`, { ...service, spec })
  await sealane(['export', name, '--namespace', 'demo', ...at(c2)])
  const path = `/apis/multicluster.x-k8s.io/v1beta1/namespaces/demo/serviceimports/${name}`
  await eventually(() => c3.plane.api.find(path), { deadlineMs: 90_000, say: `c3 imports ${name}` })
}

async function looking(t: Test, { hub, c2 }: World): Promise<void> {
  const env = { KUBECONFIG: c2.plane.kubeconfig }
  const shown = await sealane(['show', 'clusters'], env)
  t.match(shown.stdout, /^CLUSTER .*\nc2 .*\nc3 /)
  t.match(shown.stderr, /^context "c2" of .*, from KUBECONFIG\n$/, 'which one was taken is said')
  const exports = async (...words: string[]): Promise<string> =>
    (await sealane(['show', 'exports', ...words], env)).stdout.split('\n').slice(1).join('\n')
  t.match(await exports('-A'), /^demo +first /)
  t.match(await exports('-n', 'demo', '-o', 'wide'), /^demo +first /)
  t.equal(await exports('-n', 'default'), '')
  const tokens = await sealane(['token', 'list'], { KUBECONFIG: hub.plane.kubeconfig })
  t.match(tokens.stdout, /^\S+ +used +0 +any +- +(c2,c3|c3,c2) /m)
  const away = await trySealane(['token', 'list'], env)
  t.match(away, {
    code: 1,
    stderr: /no broker is installed\ninstall or repair it: sealane broker deploy --context c2\n$/,
  })

  const member = await sealane(['version'], env)
  t.match(member.stdout, /^kubernetes +v\d/m)
  t.match(member.stdout, /^gateway +\d+\.\d+\.\d+ +status of c2n1 +localhost\/sealane:test$/m)
  t.match(member.stdout, /^routeagent +\d+\.\d+\.\d+ +status of c2n1 /m)
  t.match(member.stdout, /^broker +unknown: not in this cluster /m)
  const atHub = await sealane(['version', ...at(hub), '-o', 'json', '--timeout', '20s'])
  const said = JSON.parse(atHub.stdout) as { sealane: string; cluster: { parts: { part: string; version?: string }[] } }
  t.equal(said.cluster.parts.find(({ part }) => part === 'broker')?.version, said.sealane, 'the broker says its own')
}

async function notAsked(t: Test, { hub, c2 }: World): Promise<void> {
  const refused = await trySealane(['leave', ...at(c2)])
  t.equal(refused.code, 2)
  t.equal(refused.stdout, '')
  const file = c2.plane.kubeconfig
  t.match(refused.stderr, '\n  c2 leaves clusterset default: cut off from c3\n')
  t.match(refused.stderr, '\n  other clusters can no longer call the services exported here: demo/first\n')
  t.match(refused.stderr, '\n  lanes, routes and rules in the kernel of c2n1\n')
  const last = `sealane: there is no terminal to ask for confirmation: expected --yes\nrun: sealane leave --kubeconfig ${file} --yes\n`
  t.ok(refused.stderr.endsWith(last), refused.stderr)
  const states = await membersOf(hub)
  t.equal(states, 'c2 in contact,c3 in contact', 'nothing was done')
}

/** The members by id, as `c2 in contact,c3 left`. */
async function membersOf(hub: TestCluster): Promise<string> {
  const { stdout } = await sealane(['cluster', 'list', '--all', '-o', 'json', ...at(hub)])
  const { items } = JSON.parse(stdout) as { items: { id: string; state: string }[] }
  return items.map(({ id, state }) => `${id} ${state}`).join()
}

async function broker(t: Test, world: World): Promise<void> {
  const { directory, hub } = world
  const { api } = hub.plane
  const inUse = await trySealane(['uninstall', '--yes', ...at(hub)])
  t.equal(inUse.code, 1)
  t.match(inUse.stderr, '  its members are cut off from it: c2 (in contact), c3 (in contact)\n')
  t.match(inUse.stderr, `first take a backup: sealane broker backup ${at(hub).join(' ')} --output broker.backup\n`)
  t.match(
    inUse.stderr,
    /has members in contact: c2, c3\nrun sealane leave in each of them first, or evict them: sealane uninst/,
  )
  t.match(await api.get(`${BROKER}/pods/sealane-broker-0`), { status: { phase: 'Running' } }, 'it runs on')

  const file = join(directory, 'broker.backup')
  const words = ['broker', 'backup', ...at(hub), '--output', file]
  t.equal((await sealane(words)).stdout, `${file}\n`)
  t.equal(statSync(file).mode & 0o777, 0o600)
  t.match(await trySealane(words), { code: 1, stderr: /the file already exists\nchoose another name, or/ })
  await exported(world, 'after-backup')

  const gone = await sealane(['uninstall', '--yes', '--evict-members', ...at(hub)])
  t.match(gone.stderr, / {2}evicted {3}c2\n {2}evicted {3}c3\n/)
  const stays = "the broker's data is kept in PersistentVolumeClaim sealane-broker/sealane-broker-data (--delete-data)"
  t.equal(gone.stdout, `the broker was removed; ${stays}; the CRDs are kept (--crds)\n`)
  t.match(await api.get(CLAIM), { status: { phase: 'Bound' } }, 'its volume stays')
  const again = await sealane(['uninstall', '--yes', ...at(hub)])
  t.equal(again.stdout, `${stays}; the CRDs are kept (--crds)\n`, 'the second time says what is left')

  await sealane(['broker', 'deploy', ...at(hub), '--service-type', 'NodePort', ...IMAGE])
  t.equal(await membersOf(hub), 'c2 evicted,c3 evicted', 'a new deploy finds its data')
  const restored = await sealane(['broker', 'restore', file, ...at(hub)])
  t.match(restored.stdout, /^restored: the broker has its state of \d{4}-/)
  await eventually(async () => (await membersOf(hub)) === 'c2 in contact,c3 in contact', {
    deadlineMs: 120_000,
    intervalMs: 1000,
    say: 'both members are in contact again, without joining',
  }).catch((error: unknown) => reportedBy(world, error))
  await exported(world, 'after-restore')
}

/** Throws the error with the list of members, and the last lines of the broker and of both members. */
async function reportedBy({ hub, c2, c3 }: World, error: unknown): Promise<never> {
  const words = [await membersOf(hub), await lastWords(hub.plane.api, 'sealane-broker', 30)]
  for (const { plane } of [c2, c3]) words.push(await lastWords(plane.api, 'sealane-system', 30))
  throw new Error(`${String(error)}\n${words.join('\n')}`, { cause: error })
}

/** The other commands wait for the stopped cluster only as long as --timeout says. */
async function stopped(t: Test, { c3 }: World): Promise<void> {
  const pid = c3.plane.pids()['kube-apiserver']
  if (pid === undefined) throw new Error('the API server of c3 does not run')
  const ended = async (words: readonly string[]): Promise<CommandResult> => {
    const done = await trySealane([...words, ...at(c3), '--timeout', '2s'])
    t.ok(done.ms < 20_000, `${words.join(' ')} ended after ${(done.ms / 1000).toFixed(1)} s`)
    return done
  }
  process.kill(pid, 'SIGSTOP')
  try {
    for (const words of [
      ['show', 'connections'],
      ['token', 'list'],
      ['cluster', 'list'],
    ]) {
      t.match(await ended(words), { code: 1, stderr: /^sealane: context "c3" of .* no answer within 2s\ncheck that/ })
    }
    t.match(await ended(['version']), { code: 0, stdout: /^kubernetes +unknown: no answer within 2s/m })
  } finally {
    process.kill(pid, 'SIGCONT')
  }
  await eventually(async () => (await trySealane(['show', 'clusters', ...at(c3)])).code === 0, {
    deadlineMs: 60_000,
    say: 'the API server answers again',
  })
}

const OURS = '/apis/sealane.io/v1alpha1'
const BROKER_SET = '/apis/apps/v1/namespaces/sealane-broker/statefulsets/sealane-broker'

interface PodObject extends KubeObject {
  readonly status?: { readonly containerStatuses?: readonly { readonly name: string; readonly restartCount: number }[] }
}

async function brokenLeave(t: Test, { hub, c2, c3 }: World): Promise<void> {
  const { api } = c2.plane
  const objects = async (): Promise<string[]> => {
    const lists = ['clusters', 'endpoints', 'gateways', 'routeagents'].map((plural) => api.list(`${OURS}/${plural}`))
    return (await Promise.all(lists)).flat().map(({ metadata }) => metadata.name)
  }
  const restarts = async (): Promise<number> => {
    const pods = (await api.list(`/api/v1/namespaces/sealane-system/pods`)) as PodObject[]
    return pods.flatMap(({ status }) => status?.containerStatuses ?? []).reduce((sum, one) => sum + one.restartCount, 0)
  }
  const scale = (replicas: number): Promise<unknown> => hub.plane.api.merge(BROKER_SET, { spec: { replicas } })
  const membership = () => api.get<KubeObject & { spec: { phase: string } }>(`${OURS}/memberships/self`)
  const [before, restartsBefore] = [await objects(), await restarts()]
  await scale(0)
  await eventually(async () => (await hub.plane.api.find(`${BROKER}/pods/sealane-broker-0`)) === undefined, {
    deadlineMs: 60_000,
    say: 'the broker is away',
  })

  const left = await trySealane(['leave', '--yes', ...at(c2), '--timeout', '8s'])
  t.equal(left.code, 1)
  t.match(left.stderr, /\nnothing was removed: this cluster is still a member; /)
  t.match(left.stderr, /the leave to be reported to the broker/)
  t.strictSame(await objects(), before, 'lanes, and what was mirrored, stay')
  const { spec, metadata } = await membership()
  t.equal(spec.phase, 'joined')
  t.equal(metadata.annotations?.[LEAVE_REQUESTED_ANNOTATION], undefined, 'no request is left')

  // A command of an earlier release sets this phase at once.
  await api.merge(`${OURS}/memberships/self`, { spec: { phase: 'leaving' } })
  const nodeParts = async (): Promise<number> =>
    (await api.list(`${OURS}/gateways`)).length + (await api.list(`${OURS}/routeagents`)).length
  await eventually(async () => (await nodeParts()) === 0, { deadlineMs: 60_000, say: 'the parts take themselves out' })
  const joining = sealane(['join', ...at(c2), '--cluster-id', 'c2', '--yes', ...IMAGE])
  await eventually(async () => (await membership()).spec.phase === 'joined', {
    deadlineMs: 60_000,
    say: 'join takes it back',
  })
  await scale(1)
  const done = await joining.catch(async (error: unknown) => {
    throw new Error(`${String(error)}\n${await lastWords(api, 'sealane-system', 30)}`, { cause: error })
  })
  t.match(done.stderr, /a leave that was not reported to the broker is undone\n/)
  t.equal(await restarts(), restartsBefore, 'no part has ended meanwhile')
  t.strictSame((await objects()).sort(), [...before].sort(), 'and all is as it was')
  await exported({ directory: '', hub, c2, c3 }, 'after-leave')
}

interface CrdObject extends KubeObject {
  readonly status?: unknown
}

async function leaving(t: Test, { hub, c2, c3 }: World): Promise<void> {
  await c3.plane.api.get<CrdObject>(`${CRDS}/serviceexports.multicluster.x-k8s.io`)
  await c3.plane.api.delete(`${CRDS}/serviceexports.multicluster.x-k8s.io`)
  await eventually(async () => (await c3.plane.api.find(`${CRDS}/serviceexports.multicluster.x-k8s.io`)) === undefined)
  const missing = await eventually(
    async () => {
      const shown = await trySealane(['show', 'exports', ...at(c3)])
      return shown.code === 1 ? shown : undefined
    },
    { deadlineMs: 30_000, say: 'the API server has forgotten the kind' },
  )
  t.match(
    missing.stderr,
    /its CustomResourceDefinition serviceexports\.multicluster\.x-k8s\.io is missing\nrestore it: s/,
  )
  t.ok(missing.ms < 20_000, 'and says so at once')

  t.equal((await sealane(['leave', '--yes', ...at(c2)])).stdout, 'c2 has left the clusterset; Sealane is removed\n')
  t.match(await trySealane(['leave', ...at(c2)]), { code: 1, stderr: /: Sealane is not installed\n$/ })
  const there = await sealane(['uninstall', '--yes', ...at(c3)])
  t.equal(there.stdout, 'c3 has left the clusterset; the CRDs are kept (--crds)\n')
  t.equal(await membersOf(hub), 'c2 left,c3 left')
  const last = await sealane(['uninstall', '--yes', '--delete-data', ...at(hub)])
  t.equal(last.stdout, 'the broker was removed; the CRDs are kept (--crds)\n')
  t.equal(await hub.plane.api.find(BROKER), undefined, 'namespace and volume are gone')
  const nothing = await sealane(['uninstall', '--yes', ...at(hub)])
  t.equal(nothing.stdout, 'Sealane was not installed; the CRDs are kept (--crds)\n')
}
