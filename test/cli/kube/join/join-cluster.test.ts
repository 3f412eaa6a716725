/**
 * A whole join on a cluster in memory: which conditions it waits for, which ones it continues without, and the messages
 * about them.
 */
import t from 'tap'
import type { RekeyingBroker } from '../../../../cli/cluster/identity-secret.ts'
import type { JoinedCluster } from '../../../../cli/cluster/join-cluster.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import type { ClusterTrafficPolicy } from '../../../../model/objects.ts'
import { trafficPolicyProblem } from '../../../../model/services/traffic-policies.ts'
import { DEFAULT_VALUES } from '../../../../install/values/install-values.ts'
import { createJoinToken } from '../../../../protocol/identity/token.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { failure } from '../../../support/failure.ts'
import { KUBEADM } from '../../../support/corefiles.ts'
import { configMap } from '../../cluster-dns/objects.ts'
import type { InstallingAdmin } from '../../../support/installing-admin.ts'
import { CARE, OURS, SYSTEM, cluster, gateway, join, node, secret, secretParts } from './joining.ts'

t.test('the first member, and one that reaches all others', async (t) => {
  const first = await join([node('n1', 'True'), cluster('paris'), gateway()])
  t.match(first.outcome, { others: { reached: [], alone: true } })
  t.strictSame(first.reported, ['joined', 'all parts are ready'])
  const second = await join([node('n1', 'True'), cluster('paris'), cluster('tokyo'), gateway('tokyo')])
  t.match(second.outcome, { others: { reached: ['tokyo'], alone: false } })
  t.strictSame(second.reported, ['joined', 'all parts are ready', 'lanes are up, and probes pass: tokyo'])
  const no = await join([node('n1', 'True')], (a) => void a.refuses.set('Role sealane-system/sealane-agent', ''), CARE)
  t.match([no.outcome, no.admin.done.length], [{ reason: 'AdmissionRefuses' }, 0], 'a rule is asked about first')
})

t.test('a join restores the maxUnavailable of a DaemonSet that a killed one left raised', async (t) => {
  const raised: ManifestObject = {
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    metadata: { name: 'sealane-gateway', namespace: SYSTEM, annotations: { 'sealane.io/max-unavailable': '1' } },
    spec: { updateStrategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 4 } } },
  }
  const objects = [node('n1', 'True'), cluster('paris'), gateway(), raised]
  const ref = { apiVersion: 'apps/v1', kind: 'DaemonSet', namespace: SYSTEM, name: 'sealane-gateway' }
  const dry = await join(objects, undefined, { dryRun: true })
  t.notMatch(dry.said, 'restored')
  t.notOk(dry.admin.done.includes('merge DaemonSet sealane-system/sealane-gateway'))
  const { admin, said } = await join(objects)
  t.match(said, / {2}restored {2}DaemonSet sealane-system\/sealane-gateway /)
  const now = await admin.get(ref)
  t.strictSame(now?.metadata.annotations?.['sealane.io/max-unavailable'], undefined)
  t.match(now?.['spec'], { updateStrategy: { rollingUpdate: { maxUnavailable: 1 } } })
})

t.test('the cluster DNS is waited for; when it takes too long, that is said, and the join stands', async (t) => {
  const dns = configMap('coredns', { Corefile: KUBEADM })
  const message =
    "the cluster's DNS does not forward clusterset.local to Sealane; asked for its SOA, it answered: SERVFAIL"
  const LATE = 'it does not forward clusterset.local to Sealane yet'
  const rows: readonly (readonly [
    condition: object | undefined,
    reported: readonly string[],
    left: readonly string[],
  ])[] = [
    [{ type: 'ClusterDNS', status: 'True' }, ['cluster DNS forwards clusterset.local to Sealane'], []],
    [{ type: 'ClusterDNS', status: 'False', message }, [], [`${LATE} (${message})`]],
    [undefined, [], [`${LATE} (the agent has not reported it)`]],
  ]
  for (const [condition, wanted, left] of rows) {
    const own = { ...cluster('paris'), status: { conditions: condition === undefined ? [] : [condition] } }
    const { outcome, reported } = await join([node('n1', 'True'), own, gateway(), dns])
    t.strictSame(reported, ['joined', 'all parts are ready', ...wanted])
    t.strictSame((outcome as JoinedCluster).dns, { left })
  }
  const byHand = await join([node('n1', 'True'), cluster('paris'), gateway()])
  t.match(
    byHand.outcome,
    { dns: { left: [/^Sealane does not know the DNS server of this cluster/] } },
    'what is to be done by hand first is not waited for',
  )
})

t.test('a node that is down and a member that is silent are named, not waited for', async (t) => {
  const labels = { 'app.kubernetes.io/name': 'sealane', 'controller-revision-hash': 'a' }
  const place = (part: string, on: string) => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name: `${part}-${on}`,
      namespace: SYSTEM,
      labels: { ...labels, 'app.kubernetes.io/component': part },
    },
    spec: { nodeName: on },
    status: { conditions: [{ type: 'Ready', status: on === 'n1' ? 'True' : 'False' }] },
  })
  const revision = (part: string) => ({
    apiVersion: 'apps/v1',
    kind: 'ControllerRevision',
    metadata: {
      name: part,
      namespace: SYSTEM,
      labels,
      ownerReferences: [{ kind: 'DaemonSet', name: `sealane-${part}` }],
    },
    revision: 1,
  })
  const parts = ['gateway', 'routeagent']
  const objects = [
    ...[
      node('n1', 'True'),
      node('w3', 'Unknown'),
      cluster('paris'),
      cluster('tokyo'),
      cluster('kyoto', true),
      gateway('tokyo'),
    ],
    ...parts.flatMap((part) => [revision(part), place(part, 'n1'), place(part, 'w3')]),
  ]
  const down = (admin: InstallingAdmin): void =>
    void (admin.daemons = { desiredNumberScheduled: 2, numberReady: 1, updatedNumberScheduled: 2 })
  const { outcome, reported } = await join(objects, down)
  t.match(outcome, { others: { reached: ['tokyo'], alone: false } })
  t.strictSame(reported, [
    'joined',
    'not waiting for: node w3 is not ready',
    'all parts are ready',
    'not waiting for: cluster kyoto is not in contact: the cluster has had no connection to the broker since noon',
    'lanes are up, and probes pass: tokyo',
  ])
})

t.test('a member that is heard and not reached is an error', async (t) => {
  const { done, reported } = await join([
    ...[node('n1', 'True'), cluster('paris'), cluster('tokyo'), cluster('kyoto', true), gateway('kyoto')],
  ])
  const error = await failure(done)
  t.equal(error.message, 'waited 0s for lanes: to tokyo: tokyo connecting: not reported yet')
  t.match(error, { hint: 'to continue, run the same command again' })
  t.strictSame(reported, ['joined', 'all parts are ready'])
})

t.test('only silent members: it ends, and says that nobody is reached', async (t) => {
  const { outcome, reported } = await join([node('n1', 'True'), cluster('paris'), cluster('kyoto', true), gateway()])
  t.match(outcome, { others: { reached: [], alone: false } })
  t.strictSame(reported, [
    'joined',
    'all parts are ready',
    'not waiting for: cluster kyoto is not in contact: the cluster has had no connection to the broker since noon',
  ])
})

const START = new FakeClock().now()
const DAY = 24 * 3_600_000
const WHOLE = ['joined', 'all parts are ready']

t.test('an identity that counts stands; one that has ended is replaced if there is a token', async (t) => {
  const there = [node('n1', 'True'), cluster('paris'), gateway()]
  const known = await join([...there, secret(await secretParts(START))])
  t.strictSame(known.reported, ['already joined as paris: the token is not used', ...WHOLE])
  const ended = await join([...there, secret(await secretParts(START - 2 * DAY))])
  t.match(ended.outcome, { others: { alone: true } })
  t.strictSame(ended.reported, [
    'joined earlier as paris; its certificate expired at 2025-12-31T00:00:00.000Z',
    ...WHOLE,
  ])
  const kept = await ended.admin.get({ apiVersion: 'v1', kind: 'Secret', name: 'sealane-identity', namespace: SYSTEM })
  t.strictSame(kept?.['data'], ended.admin.identity)
})

t.test('a token that came too late goes; where none lies there, nothing is written', async (t) => {
  const there = [node('n1', 'True'), cluster('paris'), gateway()]
  const ref = { apiVersion: 'v1', kind: 'Secret', name: 'sealane-identity', namespace: SYSTEM }
  const written = ({ admin }: Awaited<ReturnType<typeof join>>) =>
    admin.done.filter((line) => line === 'merge Secret sealane-system/sealane-identity').length
  const identity = await secretParts(START)
  const token = Buffer.from('sealane1.late').toString('base64')
  const late = await join(there, (admin) => void (admin.identity = { ...identity, token }))
  t.strictSame(late.reported, WHOLE)
  t.strictSame((await late.admin.get(ref))?.['data'], identity)
  const inTime = await join(there, (admin) => void (admin.identity = identity))
  t.equal(written(late) - written(inTime), 1)
})

t.test('a leave that broke off is taken back, or finished where the broker knows of it', async (t) => {
  const there = await earlier()
  const says = (annotations: object, phase: string): readonly ManifestObject[] =>
    there.map((object) => {
      if (object.kind !== 'Membership') return object
      return {
        ...object,
        metadata: { ...object.metadata, annotations },
        spec: { clusterId: 'paris', phase },
      } as ManifestObject
    })
  const membership = { apiVersion: OURS, kind: 'Membership', name: 'self' }
  const rows: readonly (readonly [say: string, objects: readonly ManifestObject[]])[] = [
    ['asked for', says({ 'sealane.io/leave-requested': 'true' }, 'joined')],
    ['begun, and the broker has not been told', says({ 'sealane.io/leave-untold': 'true' }, 'leaving')],
  ]
  for (const [say, objects] of rows) {
    const { admin, said, reported } = await join(objects)
    t.match(said, 'a leave that was not reported to the broker is undone\n', say)
    t.match(reported, ['already joined as paris: the token is not used'], say)
    const after = await admin.get(membership)
    t.match(after, { spec: { phase: 'joined' } }, say)
    t.notMatch(after?.metadata.annotations, { 'sealane.io/leave-requested': String }, say)
    t.notMatch(after?.metadata.annotations, { 'sealane.io/leave-untold': String }, say)
  }
  const reported = says({}, 'leaving').map((object) => (object.kind === 'Secret' ? { ...object, data: {} } : object))
  const error = await failure((await join(reported, undefined, { token: undefined })).done)
  t.equal(error.message, 'context "c1" of kubeconfig has left its clusterset: its parts remove themselves')
  t.match(error, {
    hint: 'finish the leave: sealane leave --context c1; or join again with a token: sealane join --context c1 ',
  })
  const { said } = await join(reported, undefined, { dryRun: true })
  t.match(said, 'an earlier leave is completed first\n')
})

t.test('a cluster that its agent has not looked around in yet is not said to be the first', async (t) => {
  const error = await failure((await join([node('n1', 'True'), gateway()])).done)
  t.equal(error.message, 'waited 0s for lanes: the members of the clusterset from the broker')
})

/** Returns the objects after a first join, for a second join to find. */
async function earlier(): Promise<readonly ManifestObject[]> {
  return objectsOf((await join([node('n1', 'True'), cluster('paris'), gateway()])).admin)
}

async function objectsOf(admin: InstallingAdmin): Promise<readonly ManifestObject[]> {
  const kinds = [
    ['v1', ['Namespace', 'Node', 'ConfigMap', 'Service', 'ServiceAccount', 'Secret', 'ResourceQuota']],
    ['apps/v1', ['Deployment', 'DaemonSet']],
    ['policy/v1', ['PodDisruptionBudget']],
    ['networking.k8s.io/v1', ['NetworkPolicy']],
    ['rbac.authorization.k8s.io/v1', ['ClusterRole', 'ClusterRoleBinding', 'Role', 'RoleBinding']],
    ['admissionregistration.k8s.io/v1', ['ValidatingAdmissionPolicy', 'ValidatingAdmissionPolicyBinding']],
    ['apiextensions.k8s.io/v1', ['CustomResourceDefinition']],
    [OURS, ['Membership', 'Cluster', 'Gateway']],
  ] as const
  const found = await Promise.all(
    kinds.flatMap(([apiVersion, names]) => names.map((kind) => admin.list(apiVersion, kind, {}))),
  )
  return found.flat()
}

const written = ({ done }: InstallingAdmin): readonly string[] => done.filter((line) => !line.endsWith('(dry)'))
const AGAIN = { token: undefined, force: true }

t.test('a second join without a token has nothing to do, and says so', async (t) => {
  const { admin, said, outcome } = await join(await earlier(), () => undefined, AGAIN)
  t.match(outcome, { others: { alone: true } })
  t.match(said, /^paris is already a member: repair of missing or changed objects; image localhost\/sealane:\S+$/m)
  t.match(said, /^no changes: the installation is up to date$/m)
  t.strictSame(written(admin), [], 'nothing is written, so nobody owns more than before')
})

t.test('a change is shown, asked about, and made alone', async (t) => {
  const asked = { ...AGAIN, asked: { image: 'localhost/sealane:x' } }
  const values = { ...DEFAULT_VALUES, image: { ...DEFAULT_VALUES.image, tag: 'x' } }
  const questions: string[] = []
  const answering = (answer: boolean) => (question: string) => (questions.push(question), Promise.resolve(answer))
  const no = await join(await earlier(), () => undefined, { ...asked, values, confirm: answering(false) })
  t.match(no.outcome, { message: 'nothing was changed' })
  t.match(no.said, /^paris is already a member: upgrade from image localhost\/sealane:\S+ to localhost\/sealane:x$/m)
  t.match(no.said, /^ {2}~ DaemonSet sealane-system\/sealane-gateway\n {6}spec\.template\.spec\.containers.*sealane:x/m)
  t.strictSame([written(no.admin), questions], [[], ['Make these changes']])
  const yes = await join(await earlier(), () => undefined, { ...asked, values, confirm: answering(true) })
  const workloads = ['Deployment sealane-system/sealane-agent', 'DaemonSet sealane-system/sealane-gateway']
  const rest = ['DaemonSet sealane-system/sealane-routeagent', 'Deployment sealane-system/sealane-dns']
  t.strictSame(
    written(yes.admin),
    [...workloads, ...rest].map((title) => `apply ${title}`),
  )
  const dry = await join(await earlier(), () => undefined, { ...asked, values, dryRun: true })
  t.strictSame(written(dry.admin), [], 'a dry run shows and asks nothing')
  t.match(dry.said, /^ {2}~ DaemonSet sealane-system\/sealane-gateway$/m)
  t.equal(questions.length, 2)
})

t.test('--no-console: what belongs to the console is shown, and goes', async (t) => {
  const values = { ...DEFAULT_VALUES, console: { ...DEFAULT_VALUES.console, enabled: true } }
  const before = (await join(await earlier(), () => undefined, { ...AGAIN, values, asked: { console: true } })).admin
  const there = await objectsOf(before)
  const isOfConsole = ({ metadata: { labels } }: ManifestObject): boolean =>
    labels?.['app.kubernetes.io/component'] === 'console'
  t.ok(there.filter(isOfConsole).length > 5)
  const kept = await join(there, () => undefined, AGAIN)
  t.strictSame(written(kept.admin), [], 'it stays where nothing is said about it')
  const dry = await join(there, () => undefined, { ...AGAIN, asked: { console: false }, dryRun: true })
  t.match(dry.said, /^ {2}- Deployment sealane-system\/sealane-console$/m)
  t.strictSame(written(dry.admin), [])
  const { admin } = await join(there, () => undefined, { ...AGAIN, asked: { console: false } })
  const left = await objectsOf(admin)
  t.strictSame(left.filter(isOfConsole), [])
  t.equal(left.length, there.length - there.filter(isOfConsole).length, 'all else stays')
  t.ok(written(admin).every((line) => /^remove .*console/.test(line)))
})

const DEFAULT_POLICY = { apiVersion: OURS, kind: 'ClusterTrafficPolicy', name: 'default' }

t.test('--prefer-local: shown, written once, and a default of somebody else stays', async (t) => {
  const near = { ...AGAIN, preferLocal: true }
  const title = 'ClusterTrafficPolicy default'
  const dry = await join(await earlier(), undefined, { ...near, dryRun: true })
  t.match(dry.said, /^ {2}\+ ClusterTrafficPolicy default$/m)
  t.strictSame(written(dry.admin), [])
  const may = (admin: InstallingAdmin): void => void admin.denied.add('create clustertrafficpolicies')
  t.match((await join(await earlier(), may, near)).outcome, { message: /may not create clustertrafficpolicies/ })
  const first = await join(await earlier(), undefined, near)
  t.strictSame(written(first.admin), [`apply ${title}`])
  const policy = await first.admin.get(DEFAULT_POLICY)
  const same = (property: string) => ({
    selector: { properties: { matchProperties: { [property]: '@SameAsImporter@' } } },
  })
  const order = [{ local: {} }, same('zone.sealane.io'), same('region.sealane.io'), { any: {} }]
  t.match(policy, { metadata: { labels: { 'app.kubernetes.io/managed-by': 'sealane' } }, spec: { order } })
  t.equal(trafficPolicyProblem(policy as unknown as ClusterTrafficPolicy), undefined)
  const objects = [...(await earlier()), policy as ManifestObject]
  const again = await join(objects, undefined, near)
  t.match(again.said, /^no changes: the installation is up to date$/m)
  t.strictSame(written(again.admin), [])
  const without = await join(objects, undefined, AGAIN)
  t.strictSame(written(without.admin), [], 'a join without the flag leaves it as it is')
  const old = { ...(policy as ManifestObject), spec: { order: [{ any: {} }] } }
  const edited = await join([...(await earlier()), old], undefined, near)
  t.strictSame(written(edited.admin), [], 'one that a user has edited stays')
  t.match(
    edited.said,
    /^ClusterTrafficPolicy default is not as sealane join writes it[^]*^ {6}spec.order: .*any.* -> /m,
  )
  const own = { ...old, metadata: { name: 'default' } }
  const stays = await join([...(await earlier()), own], undefined, near)
  t.strictSame(written(stays.admin), [])
  t.match(
    stays.said,
    /^ClusterTrafficPolicy default is not as sealane join writes it, and stays as it is; --prefer-local /m,
  )
  t.match(stays.said, /^ {6}spec.order: .*any.* -> .*local/m)
  const alike = await join([...(await earlier()), { ...own, spec: { order } }], undefined, near)
  t.strictSame(written(alike.admin), [])
  t.notMatch(alike.said, /ClusterTrafficPolicy/)
})

t.test('what is missing is made anew, and a token in the place of a refused identity', async (t) => {
  const all = await earlier()
  const left = all.filter(({ kind, metadata }) => kind !== 'ClusterRole' || metadata.name !== 'sealane-dns')
  const mended = await join(left, () => undefined, AGAIN)
  t.match(mended.said, /^ {2}\+ ClusterRole sealane-dns$/m)
  t.strictSame(written(mended.admin), ['apply ClusterRole sealane-dns'])
  const refused = all.map((object) =>
    object.kind === 'Secret'
      ? { ...object, metadata: { ...object.metadata, annotations: { 'sealane.io/join-problem': 'evicted at noon' } } }
      : object,
  )
  const needs = await join(refused, () => undefined, AGAIN)
  t.match(needs.outcome, {
    message: /the broker refuses its identity: evicted at noon: a new token for this id is needed$/,
  })
  t.strictSame(written(needs.admin), [])
  const again = await join(refused)
  t.match(again.said, /^joined earlier as paris; the broker refuses its identity: evicted at noon$/m)
  t.ok(written(again.admin).includes('merge Secret sealane-system/sealane-identity'))
})

t.test('a member that has lost its identity gets a new one by the rights of the operator', async (t) => {
  const lost = (await earlier()).filter(({ kind }) => kind !== 'Secret' && kind !== 'Deployment')
  const asked: string[] = []
  const token = createJoinToken({
    addresses: ['192.0.2.1:7443'],
    caPin: 'a'.repeat(64),
    clusterset: 'demo',
    expiresAtMs: new FakeClock().now() + 60_000,
  }).text()
  const broker = (inContact = false) => {
    return (id: string): Promise<RekeyingBroker> => {
      const rekey = () => (asked.push(id), Promise.resolve(token))
      return Promise.resolve({ inContact, rekey })
    }
  }
  const restored = await join(lost, undefined, { ...AGAIN, rekey: broker() })
  t.match(restored.said, /has no identity: the broker issues a new one for paris$/m)
  t.strictSame(restored.reported, ['joined', 'all parts are ready'])
  t.strictSame(asked, ['paris'])
  const no = await join(lost, undefined, { ...AGAIN, rekey: broker(), confirm: () => Promise.resolve(false) })
  t.match(no.outcome, Error)
  const connected = await join(lost, undefined, { ...AGAIN, force: false, rekey: broker(true) })
  t.match(connected.outcome, { message: /paris is in contact with its broker: another cluster has the identity/ })
  t.strictSame(written(connected.admin), [])
  const none = await join(lost, undefined, { ...AGAIN, rekey: () => Promise.resolve(undefined) })
  t.match(none.outcome, { message: /has no identity: a new token for this id is needed$/ })
  const given = await join(lost, undefined, { rekey: broker() })
  t.strictSame(given.reported, ['joined', 'all parts are ready'])
  await join(await earlier(), undefined, { ...AGAIN, rekey: broker() })
  await join(lost, undefined, { ...AGAIN, rekey: broker(), dryRun: true })
  const waiting = secret({ token: Buffer.from(token).toString('base64') })
  await join([...lost, waiting], undefined, { ...AGAIN, rekey: broker() })
  t.equal(asked.length, 1, 'only where nothing else would do, and when everybody has agreed')
  const ended = secret({ token: Buffer.from('sealane1.ended').toString('base64') })
  await join([...lost, ended], undefined, { ...AGAIN, rekey: broker() })
  t.equal(asked.length, 2, 'a token that cannot work any more is none')
  const metadata = { ...waiting.metadata, annotations: { 'sealane.io/join-refused': 'of another settings file' } }
  await join([...lost, { ...waiting, metadata }], undefined, { ...AGAIN, rekey: broker() })
  t.equal(asked.length, 3, 'nor is one that the broker has refused')
})
