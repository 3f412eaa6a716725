/**
 * A broker of three replicas with the etcd that is installed with it, on a real API server: three clusters join through
 * one Service, replicas and members of etcd are lost, the certificate authority is rotated meanwhile, and a command
 * that is repeated changes nothing.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { sealaneVersion } from '../../runtime/version.ts'
import { eventually } from '../support/eventually.ts'
import { namespaceObject, serviceObject } from '../support/objects/service-objects.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import type { KubeObject } from './support/kube-request.ts'
import { execInPod } from './support/node.ts'
import { lastWords } from './support/pod-logs.ts'
import { type RunningCommand, sealane, startSealane, trySealane } from './support/sealane-command.ts'
import { type ClusterRow, ETCD_IMAGE, SEALANE_IMAGE, type TestCluster, startClusters } from './support/two-clusters.ts'

t.setTimeout(1_500_000)

const ROWS: readonly ClusterRow[] = [
  { name: 'hub', podCIDR: '10.42.0.0/16', serviceCIDR: '10.43.0.0/16', nodes: ['h1'] },
  { name: 'c2', podCIDR: '10.52.0.0/16', serviceCIDR: '10.53.0.0/16', nodes: ['c2n1'] },
  { name: 'c3', podCIDR: '10.62.0.0/16', serviceCIDR: '10.63.0.0/16', nodes: ['c3n1'] },
]
const IMAGE = ['--image', SEALANE_IMAGE]
const DEPLOY = ['broker', 'deploy', '--replicas', '3', '--service-type', 'NodePort', ...IMAGE]
const ETCD = ['--etcd-image', ETCD_IMAGE, '--etcd-storage-size', '1Gi']
const BROKER = '/api/v1/namespaces/sealane-broker'
const APPS = '/apis/apps/v1/namespaces/sealane-broker'

interface World {
  readonly directory: string
  readonly hub: TestCluster
  readonly c2: TestCluster
  readonly c3: TestCluster
}

const at = ({ plane }: TestCluster): readonly string[] => ['--kubeconfig', plane.kubeconfig]

t.test('replicas of the broker, with an etcd beside them', { timeout: 1_500_000 }, async (t) => {
  const directory = temporaryFolder(t)
  const clusters = await startClusters({ directory, rows: ROWS })
  t.teardown(() => clusters.stop())
  const [hub, c2, c3] = clusters.clusters
  if (hub === undefined || c2 === undefined || c3 === undefined) throw new Error('three clusters were asked for')
  const world = { directory, hub, c2, c3 }
  const stage = (name: string, work: (t: Test, world: World) => Promise<void>) =>
    t.test(name, (t) => work(t, world).catch((error: unknown) => reportedBy(world, error)))
  await stage('deployed, and once more', deployed)
  await stage('three join', joined)
  await stage('all of them on one screen', seen)
  await stage('a replica and a member of etcd are lost', lost)
  await stage('the certificate authority is rotated, with another replica lost on the way', rotated)
  await stage('a cluster waits for approval', approved)
  await stage('more and fewer', counts)
  await stage('uninstalled, and deployed on what is left', uninstalled)
})

/** Throws the error with the last lines of the broker's pods. */
async function reportedBy({ hub }: World, error: unknown): Promise<never> {
  const words = await lastWords(hub.plane.api, 'sealane-broker', 30)
  throw new Error(`${String(error)}\n${words}`, { cause: error })
}

/** The generations of the applied objects. */
async function versions({ hub }: World): Promise<readonly string[]> {
  const kinds = [`${APPS}/deployments`, `${APPS}/statefulsets`, `${BROKER}/services`, `${BROKER}/secrets`]
  const lists = await Promise.all(kinds.map((path) => hub.plane.api.list(path)))
  return lists.flat().map(({ metadata }) => {
    const { name, generation, uid } = metadata as { name: string; generation?: number; uid?: string }
    return `${name} ${uid ?? ''} ${generation ?? ''}`
  })
}

interface PodObject extends KubeObject {
  readonly status?: {
    readonly phase?: string
    readonly conditions?: readonly { readonly type: string; readonly status: string }[]
  }
}

/** The names of the pods that are ready and not terminating. */
async function readyPods({ hub }: World, part: 'broker' | 'etcd'): Promise<readonly string[]> {
  const found = await hub.plane.api.list<PodObject>(
    `${BROKER}/pods?labelSelector=app.kubernetes.io%2Fcomponent%3D${part}`,
  )
  return found
    .filter(({ metadata, status }) => {
      const isReady = status?.conditions?.some((one) => one.type === 'Ready' && one.status === 'True')
      return isReady === true && !('deletionTimestamp' in metadata)
    })
    .map(({ metadata }) => metadata.name)
}

async function deployed(t: Test, world: World): Promise<void> {
  const { hub } = world
  const first = await sealane([...DEPLOY, ...ETCD, ...at(hub)])
  t.comment(`deployed in ${Math.round(first.ms / 1000)} s`)
  t.match(first.stderr, /created +StatefulSet sealane-broker\/sealane-etcd/)
  t.equal((await readyPods(world, 'broker')).length, 3)
  t.equal((await readyPods(world, 'etcd')).length, 3)
  const before = await versions(world)
  const again = await sealane([...DEPLOY, ...ETCD, ...at(hub)])
  t.match(again.stderr, /a broker is already installed: its settings are kept\n/)
  t.notMatch(again.stderr, /created|changed/)
  t.strictSame(await versions(world), before, 'a second time changes nothing')
  const bare = await sealane(['broker', 'deploy', ...at(hub)])
  t.match(bare.stderr, /its settings are kept\n/)
  t.strictSame(await versions(world), before, 'nor does it without flags')
}

async function joined(t: Test, world: World): Promise<void> {
  const { directory, hub, c2, c3 } = world
  const token = join(directory, 'token')
  const made = await sealane(['token', 'create', ...at(hub), '--uses', '3', '-o', 'json'])
  writeFileSync(token, (JSON.parse(made.stdout) as { token: string }).token, { mode: 0o600 })
  const joinOne = async (member: TestCluster): Promise<void> => {
    const { row, nodes } = member
    const gateway = `${row.nodes[0] ?? ''}=${nodes[0]?.address ?? ''}`
    const words = ['join', ...at(member), '--cluster-id', row.name, '--pod-cidr', row.podCIDR, '--gateway', gateway]
    const { ms, stderr } = await sealane([...words, '--yes', '--token-file', token, ...IMAGE])
    t.comment(`${row.name} joined in ${Math.round(ms / 1000)} s\n${stderr}`)
  }
  await Promise.all([hub, c2, c3].map(joinOne))
  await exported(world, 'first')
}

/** Exports a service from c2, and waits until it arrives in the other two. */
async function exported({ hub, c2, c3 }: World, name: string): Promise<void> {
  for (const { plane } of [hub, c2, c3]) await plane.api.apply('/api/v1/namespaces/demo', namespaceObject('demo'))
  const service = serviceObject({ name, namespace: 'demo' }, { ports: [{ name: 'http', port: 80, protocol: 'TCP' }] })
  const spec = { ...service.spec, selector: { app: name } }
  await c2.plane.api.apply(`/api/v1/namespaces/demo/services/${name}`, { ...service, spec })
  await sealane(['export', name, '--namespace', 'demo', ...at(c2)])
  const path = `/apis/multicluster.x-k8s.io/v1beta1/namespaces/demo/serviceimports/${name}`
  for (const { row, plane } of [hub, c3]) {
    await eventually(() => plane.api.find(path), { deadlineMs: 90_000, say: `${row.name} imports ${name}` })
  }
}

interface MemberLook {
  readonly id: string
  readonly state: string
  readonly lastHeardMs: number
  readonly reported?: {
    readonly versions: readonly string[]
    readonly lanes: { readonly up: number; readonly of: number }
    readonly exports: { readonly count: number; readonly failed: number }
    readonly problems: readonly { readonly code: string; readonly severity: string; readonly count: number }[]
  }
}

/** The rows of `sealane members -o json`, a line for each: `c2 in contact 0.1.0 lanes 2/2 exports 1/0`. */
function lookLines(stdout: string): readonly string[] {
  return looksIn(stdout).map(({ id, state, reported }) => {
    if (reported === undefined) return `${id} ${state}`
    const { versions, lanes, exports } = reported
    return `${id} ${state} ${versions.join()} lanes ${lanes.up}/${lanes.of} exports ${exports.count}/${exports.failed}`
  })
}

function looksIn(stdout: string): readonly MemberLook[] {
  return (JSON.parse(stdout) as { readonly items: readonly MemberLook[] }).items
}

/**
 * Waits until each member is listed once and has reported this many exports of c2; it reports every five seconds at
 * most.
 */
async function membersShow({ hub }: World, exports: number): Promise<string> {
  const want = ['c2', 'c3', 'hub'].map(
    (id) => `${id} in contact ${sealaneVersion()} lanes 2/2 exports ${id === 'c2' ? exports : 0}/0`,
  )
  return eventually(
    async () => {
      const { stdout } = await sealane(['members', ...at(hub), '-o', 'json'])
      if (lookLines(stdout).join() === want.join()) return stdout
      throw new Error(lookLines(stdout).join())
    },
    { deadlineMs: 60_000, intervalMs: 2500, say: want.join() },
  )
}

/** Every replica shows all members, whichever replica a member is connected to. */
async function seen(t: Test, world: World): Promise<void> {
  const { hub } = world
  const shown = await membersShow(world, 1)
  for (const { id, lastHeardMs, reported } of looksIn(shown)) {
    const ago = Date.now() - lastHeardMs
    t.ok(ago < 120_000, `${id} was heard ${ago} ms ago`)
    t.comment(`${id}: problems ${JSON.stringify(reported?.problems)}`)
    t.type(reported?.problems, Array, `${id} says what its problems are`)
  }
  const argv = ['sealane', 'members', '--state', '/var/lib/sealane/broker', '-o', 'json']
  const sameOf = async (pod: string): Promise<void> => {
    const asked = { namespace: 'sealane-broker', pod, container: 'broker', argv, timeoutSeconds: 30 }
    const { code, stdout, stderr } = await execInPod(hub.plane.kubeconfig, asked)
    t.equal(code, 0, stderr)
    t.strictSame(lookLines(stdout), lookLines(shown), `${pod} says the same`)
  }
  const replicas = await readyPods(world, 'broker')
  t.equal(replicas.length, 3)
  await Promise.all(replicas.map(sameOf))
}

/** The number of screens of a `sealane members --watch` that show all three members. */
function screens(watch: RunningCommand): number {
  const all = watch.answered().split(/^CLUSTER .*\n/m)
  return all.filter((rows) => ['c2', 'c3', 'hub'].every((id) => new RegExp(`^${id} `, 'm').test(rows))).length
}

/** The members by id, as `c2 in contact,c3 left`. */
async function membersOf(hub: TestCluster): Promise<string> {
  const { stdout } = await sealane(['cluster', 'list', '--all', '-o', 'json', ...at(hub)])
  const { items } = JSON.parse(stdout) as { items: { id: string; state: string }[] }
  return items.map(({ id, state }) => `${id} ${state}`).join()
}

/**
 * An operator watches the members meanwhile and is not disturbed, although the replica that answers is the one that is
 * lost.
 */
async function lost(t: Test, world: World): Promise<void> {
  const { hub } = world
  const [replica = ''] = await readyPods(world, 'broker')
  const kill = (pod: string) => hub.plane.api.raw('DELETE', `${BROKER}/pods/${pod}?gracePeriodSeconds=0`)
  const watch = startSealane(['members', ...at(hub), '--watch'])
  const screen = (count: number) =>
    eventually(() => screens(watch) >= count, { deadlineMs: 60_000, say: `screen ${count} of the members` })
  await screen(1)
  await Promise.all([kill(replica), kill('sealane-etcd-1')])
  await screen(screens(watch) + 2)
  watch.process.kill('SIGINT')
  const { code, stderr } = await watch.result
  t.equal(code, 0, `somebody who watches has seen them before and after: ${stderr}`)
  await sealane(['token', 'create', ...at(hub)])
  await exported(world, 'with-one-down')
  // A member of the lost replica may be between two replicas.
  const heard = async (): Promise<boolean> => (await membersOf(hub)) === 'c2 in contact,c3 in contact,hub in contact'
  await eventually(heard, { deadlineMs: 60_000, intervalMs: 2500, say: 'all three are in contact' })
  await eventually(async () => (await readyPods(world, 'broker')).length === 3, { deadlineMs: 90_000 })
  await eventually(async () => (await readyPods(world, 'etcd')).length === 3, { deadlineMs: 90_000 })
  const healthy = async (): Promise<true> => {
    const { code, stdout, stderr } = await trySealane(['broker', 'status', ...at(hub)])
    if (code === 0) return true
    throw new Error(`${stdout}${stderr}`)
  }
  await eventually(healthy, { deadlineMs: 60_000, intervalMs: 2500, say: 'it is said to be healthy' })
  await membersShow(world, 2)
}

interface CaStatus {
  readonly phase: string
  readonly current: { readonly fingerprint: string }
  readonly next?: { readonly fingerprint: string }
}

/** All members get certificates of the second authority: each of them renews, whichever replica it is connected to. */
async function rotated(t: Test, world: World): Promise<void> {
  const { hub } = world
  const ca = async (...words: string[]): Promise<CaStatus> => {
    const { stdout } = await sealane(['broker', 'ca', ...words, ...at(hub), '-o', 'json'])
    return JSON.parse(stdout) as CaStatus
  }
  const before = await ca('status')
  t.equal(before.phase, 'steady')
  // The rotation waits for a token that names the old authority alone.
  const tokens = JSON.parse((await sealane(['token', 'list', ...at(hub), '-o', 'json'])).stdout) as {
    readonly items: readonly { readonly id: string; readonly state: string }[]
  }
  for (const { id } of tokens.items.filter(({ state }) => state === 'valid'))
    await sealane(['token', 'revoke', id, ...at(hub)])
  await sealane(['broker', 'ca', 'rotate', ...at(hub)])
  const [replica = ''] = await readyPods(world, 'broker')
  await hub.plane.api.raw('DELETE', `${BROKER}/pods/${replica}?gracePeriodSeconds=0`)
  const finished = async (): Promise<true> => {
    const done = await trySealane(['broker', 'ca', 'finish', ...at(hub)])
    if (done.code === 0) return true
    throw new Error(done.stderr)
  }
  await eventually(finished, { deadlineMs: 60_000, intervalMs: 2500, say: 'all members have the second authority' })
  const after = await ca('status')
  t.equal(after.phase, 'steady')
  t.not(after.current.fingerprint, before.current.fingerprint)
  const late = await trySealane(['broker', 'ca', 'abort', ...at(hub)])
  t.equal(late.code, 1, 'nothing is under way any more')
  await exported(world, 'after-rotation')
}

/** c3 is evicted and joins again, which both sides have to confirm. */
async function approved(t: Test, world: World): Promise<void> {
  const { directory, hub, c3 } = world
  await sealane(['cluster', 'evict', 'c3', '--force', ...at(hub)])
  t.match(await membersOf(hub), /c3 evicted/)
  const token = join(directory, 'token-c3')
  const made = await sealane(['token', 'create', ...at(hub), '--approve', '--cluster-id', 'c3', '-o', 'json'])
  writeFileSync(token, (JSON.parse(made.stdout) as { token: string }).token, { mode: 0o600 })
  const words = ['join', ...at(c3), '--cluster-id', 'c3', '--pod-cidr', c3.row.podCIDR, '--token-file', token]
  const joining = startSealane([...words, '--yes', ...IMAGE])
  const waits = async (): Promise<boolean> => {
    const { stdout } = await sealane(['cluster', 'waiting', ...at(hub), '-o', 'json'])
    return (JSON.parse(stdout) as { readonly items: readonly { readonly id: string }[] }).items[0]?.id === 'c3'
  }
  await eventually(waits, { deadlineMs: 60_000, intervalMs: 2500, say: 'c3 waits' })
  await sealane(['cluster', 'accept', 'c3', ...at(hub)])
  const { code, stderr } = await joining.result
  t.equal(code, 0, stderr)
  // The replica that answers learns it from the one that c3 is connected to.
  await eventually(async () => (await membersOf(hub)).includes('c3 in contact'), {
    deadlineMs: 30_000,
    say: 'it is there',
  })
}

async function counts(t: Test, world: World): Promise<void> {
  const { hub } = world
  const before = await versions(world)
  const one = await trySealane(['broker', 'deploy', '--replicas', '1', ...at(hub)])
  t.comment(one.stderr)
  t.equal(one.code, 1)
  t.match(one.stderr, /nothing was changed\n$/)
  t.strictSame(await versions(world), before)
  const two = await sealane(['broker', 'deploy', '--replicas', '2', ...at(hub)])
  t.match(two.stderr, /broker\.replicas: 3 → 2\n/)
  await eventually(async () => (await readyPods(world, 'broker')).length === 2, { deadlineMs: 60_000 })
  const three = await sealane(['broker', 'deploy', '--replicas', '3', ...at(hub)])
  t.match(three.stderr, /broker\.replicas: 2 → 3\n/)
  t.equal((await readyPods(world, 'broker')).length, 3)
}

async function uninstalled(t: Test, world: World): Promise<void> {
  const { hub, c2, c3 } = world
  const inUse = await trySealane(['uninstall', ...at(hub)])
  t.comment(inUse.stderr)
  for (const member of [c2, c3]) await sealane(['leave', '--yes', ...at(member)])
  const gone = await sealane(['uninstall', '--yes', ...at(hub)])
  t.comment(gone.stdout)
  t.comment(gone.stderr)
  await sealane([...DEPLOY, ...ETCD, ...at(hub)])
  t.equal(await membersOf(hub), 'c2 left,c3 left,hub left', 'a new deploy finds its data')
  const last = await sealane(['uninstall', '--yes', '--delete-data', ...at(hub)])
  t.comment(last.stdout)
  t.equal(await hub.plane.api.find(BROKER), undefined, 'namespace and volumes are gone')
}
