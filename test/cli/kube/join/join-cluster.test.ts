/** A whole join on a cluster in memory: what it waits for, what it goes on without, and what it says of that. */
import t from 'tap'
import type { LookAtJoin } from '../../../../cli/site/agree-on-renumbering.ts'
import { type JoinClusterInit, type JoinedCluster, joinCluster } from '../../../../cli/kube/join/join-cluster.ts'
import type { ManifestObject } from '../../../../install/manifest-object.ts'
import { DEFAULT_VALUES } from '../../../../install/values.ts'
import { parseClusterId } from '../../../../model/ids.ts'
import { RefusedError } from '../../../../protocol/broker-api.ts'
import { createJoinToken } from '../../../../protocol/identity/token.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { failure } from '../../../support/failure.ts'
import { KUBEADM } from '../../cluster-dns/corefiles.ts'
import { configMap } from '../../cluster-dns/objects.ts'
import { identityParts } from '../../../support/identity-parts.ts'
import { InstallingAdmin } from '../../../support/installing-admin.ts'
import { nodeObject } from '../../../support/objects/node-objects.ts'
import { clusterObject } from '../../../support/objects/cluster-objects.ts'

const [OURS, SYSTEM] = ['sealane.io/v1alpha1', 'sealane-system']
const CARE = { force: false }
/** By the agent, once it has got the clusterset's members. */
const MIRRORED = { 'app.kubernetes.io/managed-by': 'sealane' }

function node(name: string, ready: 'True' | 'Unknown'): ManifestObject {
  const conditions = [{ type: 'Ready', status: ready }]
  return { ...nodeObject(name), status: { conditions } }
}

function cluster(id: string, silent = false): ManifestObject {
  const said = { type: 'InContact', status: 'False', message: 'the broker has not heard from it since noon' }
  const status = { conditions: silent ? [said] : [] }
  return { ...clusterObject({ id }, { metadata: { labels: MIRRORED } }), spec: { id }, status }
}

function gateway(...up: readonly string[]): ManifestObject {
  const connections = up.map((id) => ({ cluster: id, state: 'up', message: '' }))
  return {
    apiVersion: OURS,
    kind: 'Gateway',
    metadata: { name: 'n1' },
    spec: {},
    status: { lanes: [{ lane: 0 }], connections },
  }
}

const MEMBERSHIP: ManifestObject = {
  apiVersion: OURS,
  kind: 'Membership',
  metadata: { name: 'self' },
  spec: { clusterId: 'paris' },
}

/** As they lie in the Secret. */
async function secretParts(givenAtMs: number): Promise<Readonly<Record<string, string>>> {
  const parts = Object.entries(await identityParts('demo', 'paris', givenAtMs))
  return Object.fromEntries(parts.map(([name, text]) => [name, Buffer.from(text).toString('base64')]))
}

const secret = (data: Readonly<Record<string, string>>): ManifestObject => ({
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name: 'sealane-identity', namespace: SYSTEM },
  data,
})

/** This cluster's own with the members that the broker told of: those that are here. */
function told(object: ManifestObject, all: readonly ManifestObject[]): ManifestObject {
  if (object.kind !== 'Cluster' || object.metadata.name !== 'paris') return object
  const ids = all.filter(({ kind }) => kind === 'Cluster').map(({ metadata }) => metadata.name)
  const annotations = { 'sealane.io/known-members': ids.sort().join() }
  return { ...object, metadata: { ...object.metadata, annotations } }
}

async function join(
  objects: readonly ManifestObject[],
  change: (admin: InstallingAdmin) => void = () => undefined,
  more: Partial<JoinClusterInit> = {},
) {
  const given = objects.some(({ kind }) => kind === 'Membership') ? [] : [MEMBERSHIP]
  const admin = new InstallingAdmin([...given, ...objects].map((object) => told(object, objects)))
  const clock = new FakeClock()
  admin.identity = await secretParts(clock.now())
  change(admin)
  let said = ''
  const expiresAtMs = clock.now() + 60_000
  const init: JoinClusterInit = {
    token: createJoinToken({
      addresses: ['192.0.2.1:7443'],
      caPin: 'a'.repeat(64),
      clusterset: 'demo',
      expiresAtMs,
    }).text(),
    chosen: {
      clusterId: parseClusterId('paris'),
      podCIDRs: ['10.42.0.0/16'],
      serviceCIDRs: ['10.43.0.0/16'],
      labels: {},
      gateways: [{ node: 'n1' }],
    },
    values: DEFAULT_VALUES,
    dryRun: false,
    force: true,
    flags: '--context c1',
    timeoutMs: 0,
    ask: undefined,
    clock,
    signal: new AbortController().signal,
    say: (text) => void (said += text),
    ...more,
  }
  const done = joinCluster({ admin, dynamic: admin.dynamic }, init)
  const outcome = await done.catch((error: unknown) => error as Error)
  const reported = said
    .split('\n')
    .filter((line) => /^(joined|already joined|all parts|lanes|cluster DNS hands|not waited)/.test(line))
  return { admin, done, reported, outcome, said }
}

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

t.test('the cluster DNS is waited for; when it takes too long, that is said, and the join stands', async (t) => {
  const dns = configMap('coredns', { Corefile: KUBEADM })
  const message = "asked for clusterset.local, the cluster's DNS says SERVFAIL"
  const LATE = 'it does not hand clusterset.local to Sealane yet'
  const rows: readonly (readonly [
    condition: object | undefined,
    reported: readonly string[],
    left: readonly string[],
  ])[] = [
    [{ type: 'ClusterDNS', status: 'True' }, ['cluster DNS hands clusterset.local to Sealane'], []],
    [{ type: 'ClusterDNS', status: 'False', message }, [], [`${LATE} (${message})`]],
    [undefined, [], [`${LATE} (the agent does not say)`]],
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
    { dns: { left: [/^what answers DNS in this cluster is not known/] } },
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
    'not waited for: node w3 is not ready',
    'all parts are ready',
    'not waited for: cluster kyoto is not in contact: the broker has not heard from it since noon',
    'lanes are up, and probes pass: tokyo',
  ])
})

t.test('a member that is heard and not reached is an error', async (t) => {
  const { done, reported } = await join([
    ...[node('n1', 'True'), cluster('paris'), cluster('tokyo'), cluster('kyoto', true), gateway('kyoto')],
  ])
  const error = await failure(done)
  t.equal(error.message, 'waited 0ms for lanes: to tokyo: tokyo connecting: not heard of yet')
  t.match(error, { hint: 'the same command goes on where this one ended' })
  t.strictSame(reported, ['joined', 'all parts are ready'])
})

t.test('only silent members: it ends, and says that nobody is reached', async (t) => {
  const { outcome, reported } = await join([node('n1', 'True'), cluster('paris'), cluster('kyoto', true), gateway()])
  t.match(outcome, { others: { reached: [], alone: false } })
  t.strictSame(reported, [
    'joined',
    'all parts are ready',
    'not waited for: cluster kyoto is not in contact: the broker has not heard from it since noon',
  ])
})

const START = new FakeClock().now()
const DAY = 24 * 3_600_000
const WHOLE = ['joined', 'all parts are ready']

t.test('an identity that counts stands; one that has ended is made anew from the token', async (t) => {
  const there = [node('n1', 'True'), cluster('paris'), gateway()]
  const known = await join([...there, secret(await secretParts(START))])
  t.strictSame(known.reported, ['already joined as paris: the token is not used', ...WHOLE])
  const ended = await join([...there, secret(await secretParts(START - 2 * DAY))])
  t.match(ended.outcome, { others: { alone: true } })
  t.strictSame(ended.reported, ['joined before as paris; that certificate ended at 2025-12-31T00:00:00.000Z', ...WHOLE])
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
    t.match(said, 'a leave that did not reach the broker is taken back\n', say)
    t.match(reported, ['already joined as paris: the token is not used'], say)
    const after = await admin.get(membership)
    t.match(after, { spec: { phase: 'joined' } }, say)
    t.notMatch(after?.metadata.annotations, { 'sealane.io/leave-requested': String }, say)
    t.notMatch(after?.metadata.annotations, { 'sealane.io/leave-untold': String }, say)
  }
  const told = says({}, 'leaving').map((object) => (object.kind === 'Secret' ? { ...object, data: {} } : object))
  const error = await failure((await join(told, undefined, { token: undefined })).done)
  t.equal(error.message, 'context "c1" of kubeconfig has left its clusterset: its parts take themselves out')
  t.match(error, {
    hint: 'finish that: sealane leave --context c1; or join anew with a token: sealane join --context c1 ',
  })
  const { said } = await join(told, undefined, { dryRun: true })
  t.match(said, 'a leave that did not end is finished first\n')
})

t.test('a cluster that its agent has not looked around in yet is not said to be the first', async (t) => {
  const error = await failure((await join([node('n1', 'True'), gateway()])).done)
  t.equal(error.message, 'waited 0ms for lanes: what the broker knows of the clusterset')
})

/** What is there after a first join, to be looked at by a second one. */
async function earlier(): Promise<readonly ManifestObject[]> {
  const { admin } = await join([node('n1', 'True'), cluster('paris'), gateway()])
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
  t.match(said, /^paris is a member already: repairs what is missing or differs; image localhost\/sealane:\S+$/m)
  t.match(said, /^nothing differs from what is installed$/m)
  t.strictSame(written(admin), [], 'nothing is written, so nobody owns more than before')
})

t.test('a change is shown, asked about, and made alone', async (t) => {
  const asked = { ...AGAIN, asked: { image: 'localhost/sealane:x' } }
  const values = { ...DEFAULT_VALUES, image: { ...DEFAULT_VALUES.image, tag: 'x' } }
  const questions: string[] = []
  const answering = (answer: boolean) => (question: string) => (questions.push(question), Promise.resolve(answer))
  const no = await join(await earlier(), () => undefined, { ...asked, values, confirm: answering(false) })
  t.match(no.outcome, { message: 'nothing was changed' })
  t.match(no.said, /^paris is a member already: goes from image localhost\/sealane:\S+ to localhost\/sealane:x$/m)
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
    message: /the broker refuses it: evicted at noon: a new token is needed, made for this id$/,
  })
  t.strictSame(written(needs.admin), [])
  const again = await join(refused)
  t.match(again.said, /^joined before as paris; the broker refuses it: evicted at noon$/m)
  t.ok(written(again.admin).includes('merge Secret sealane-system/sealane-identity'))
})

t.test('members whose addresses the join changes are named before, and asked about', async (t) => {
  const objects = [node('n1', 'True'), cluster('paris'), gateway()]
  const milano = { cluster: 'milano', globalCIDRs: ['244.0.0.0/16'] }
  const renumbered = [{ ...milano, openConnections: { count: 12, atLeast: false } }]
  const asked: string[] = []
  const look: LookAtJoin = ({ cluster: id, facts }) => {
    asked.push(`${id} ${facts.podCIDRs.join()} ${facts.serviceCIDRs.join()}`)
    return Promise.resolve({ globalCIDRs: ['244.1.0.0/16'], renumbered })
  }
  const names = 'other members get global addresses by this join, .*: milano \\(244\\.0\\.0\\.0/16\\)\\. '
  const named = new RegExp(`^${names}About 12 open connections with pods of milano break; `, 'm')
  const questions: string[] = []
  const answer = (yes: boolean) => (question: string) => {
    questions.push(question)
    return Promise.resolve(yes)
  }
  const refused = await join(objects, undefined, { look, confirm: answer(false) })
  t.match(refused.outcome, { message: 'nothing was changed' })
  t.match(refused.said, named)
  t.strictSame(refused.reported, [], 'and nothing is done')
  const agreed = await join(objects, undefined, { look, confirm: answer(true) })
  t.strictSame(agreed.reported, ['joined', 'all parts are ready'])
  t.strictSame(questions, ['Join all the same', 'Join all the same'])
  t.strictSame(asked, Array(2).fill('paris 10.42.0.0/16 10.43.0.0/16'))
  const script = await join(objects, undefined, { look })
  t.match(script.said, named, 'nobody can be asked: it is said')
  t.strictSame(script.reported, ['joined', 'all parts are ready'])
  const older = await join(objects, undefined, {
    look: () => Promise.resolve({ globalCIDRs: [], renumbered: [milano] }),
  })
  const notKnown = new RegExp(`^${names}Open connections with pods of milano break, how many is not known; `, 'm')
  t.match(older.said, notKnown, 'a member, or a broker, of an earlier release does not tell')
  const nobody = await join(objects, undefined, {
    look: () => Promise.resolve({ globalCIDRs: [], renumbered: [] }),
    confirm: answer(false),
  })
  t.strictSame(nobody.reported, ['joined', 'all parts are ready'], 'nobody is renumbered: nothing is asked')
  t.notMatch(nobody.said, /addresses by this join|is not known before/)
})

t.test('a broker of an older release cannot say before, and stops nobody', async (t) => {
  const objects = [node('n1', 'True'), cluster('paris'), gateway()]
  const error = new RefusedError('InvalidValue', 'csr', 'csr: malformed')
  const { said, reported } = await join(objects, undefined, { look: () => Promise.reject(error) })
  const note =
    'note: whether this join changes addresses of other members is not known before (the broker is of an older'
  t.match(said, note)
  t.strictSame(reported, ['joined', 'all parts are ready'])
})

t.test(
  'a broker that is not reached from here is asked by the agent, before anything changes for others',
  async (t) => {
    const objects = [node('n1', 'True'), cluster('paris'), gateway()]
    const look = (): Promise<never> => Promise.reject(new Error('nobody answers at 192.0.2.1:7443'))
    const note =
      'note: the broker is not reached from here: the agent asks it, before it joins, what changes for other members'
    const nobody = await join(objects, undefined, { look })
    t.match(nobody.said, note)
    t.strictSame(nobody.reported, ['joined', 'all parts are ready'], 'nobody is renumbered: nothing is asked')
    const text = 'other members get global addresses by this join: milano (244.1.0.0/16)'
    const asked: string[] = []
    for (const yes of [false, true, undefined]) {
      const confirm = (question: string): Promise<boolean> => (asked.push(question), Promise.resolve(yes === true))
      const more = yes === undefined ? { look } : { look, confirm }
      const done = await join(objects, (admin) => (admin.wouldRenumber = text), more)
      t.match(done.said, `${text}\n`, `said, ${String(yes)}`)
      if (yes === false) {
        t.match(done.outcome, { message: /^this cluster has not joined: the token is taken away/ })
        const left = await done.admin.get({
          apiVersion: 'v1',
          kind: 'Secret',
          name: 'sealane-identity',
          namespace: SYSTEM,
        })
        t.notMatch(left, { data: { token: String } }, 'the agent finds none')
      } else t.strictSame(done.reported, ['joined', 'all parts are ready'])
    }
    t.strictSame(asked, ['Join all the same', 'Join all the same'], 'with --yes it is only said')
  },
)
