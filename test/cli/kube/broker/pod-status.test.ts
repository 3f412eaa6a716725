/** The status of a broker on a cluster follows from its pods and from the report of one of them. */
import t, { type Test } from 'tap'
import type { BrokerStatus } from '../../../../protocol/admin/admin-api.ts'
import { podStatus } from '../../../../cli/broker/pod-status.ts'
import { type ShownStatus, statusText } from '../../../../cli/broker/status-text.ts'
import { planBroker } from '../../../../install/plan-broker.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { selectorLabels } from '../../../../install/values/names.ts'
import { DEFAULT_VALUES } from '../../../../install/values/install-values.ts'
import { REPLICAS_VALUES } from '../../../../scripts/manifest-files.ts'
import { messageOf } from '../../../support/failure.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'
import { dialSocket, servedAdmin } from '../../../support/served-admin.ts'

const { signal } = new AbortController()

function pod(part: 'broker' | 'etcd', i: number, ready: boolean, why?: string): ManifestObject {
  const metadata = { name: `sealane-${part}-${i}`, namespace: 'sealane-broker', labels: selectorLabels(part) }
  const conditions = [{ type: 'Ready', status: ready ? 'True' : 'False' }]
  const waiting = { waiting: { reason: 'ImagePullBackOff', message: why ?? '' } }
  const containerStatuses = why === undefined ? [] : [{ ready: false, state: waiting }]
  const status = { phase: why === undefined ? 'Running' : 'Pending', conditions, containerStatuses }
  return { apiVersion: 'v1', kind: 'Pod', metadata, status }
}

const SAID: BrokerStatus = {
  health: 'degraded',
  problems: [{ health: 'degraded', text: 'etcd at e3:2379: no connection' }],
  kind: 'etcd',
  where: 'etcd://e1,e2,e3/sealane',
  log: {
    clusterset: 'demo',
    epoch: 'e1',
    revision: 9,
    records: 4,
    members: [{ id: 'c1', state: 'in contact' }],
    waiting: 0,
    authority: { phase: 'steady', until: '2036-01-01T00:00:00.000Z', waitsFor: 0 },
  },
  replicas: [
    { id: 'a', host: 'sealane-broker-0', version: '0.1.0', members: 1 },
    { id: 'b', members: 0 },
  ],
  storeMembers: [
    { endpoint: 'e1:2379', version: '3.5.21', bytes: 2 ** 20, hasLeader: true },
    { endpoint: 'e2:2379', version: '3.5.21', bytes: 2 ** 20, hasLeader: false },
    { endpoint: 'e3:2379', why: 'no connection' },
  ],
}

async function hub(t: Test, form: 'own' | 'replicas', pods: readonly ManifestObject[]): Promise<MemoryAdmin> {
  const values = form === 'own' ? DEFAULT_VALUES : REPLICAS_VALUES
  const admin = new MemoryAdmin([...planBroker(values).flatMap(({ objects }) => objects), ...pods])
  const socket = await servedAdmin(t, { status: () => Promise.resolve(SAID) })
  admin.dial = () => dialSocket(socket)
  return admin
}

const look = (admin: MemoryAdmin) => podStatus(admin, '--context hub', signal)
const three = (part: 'broker' | 'etcd') => [0, 1, 2].map((i) => pod(part, i, true))
const texts = ({ problems }: Omit<ShownStatus, 'health'>) => problems.map(({ health, text }) => `${health}: ${text}`)

t.test('all pods are ready', async (t) => {
  const admin = await hub(t, 'replicas', [...three('broker'), ...three('etcd')])
  const shown = await look(admin)
  t.strictSame(shown.pods?.broker, { wanted: 3, ready: 3, troubles: [] })
  t.strictSame(texts(shown), ['degraded: etcd at e3:2379: no connection'], 'what the broker says is what there is')
  t.same(admin.done, ['forward sealane-broker/sealane-broker-0 7444'])
  t.equal(
    statusText({ health: 'degraded', ...shown }),
    `broker      degraded
clusterset  demo
store       etcd etcd://e1,e2,e3/sealane
revision    9 of epoch e1
members     1, in contact 1; records 4
authority   steady, until 2036-01-01T00:00:00.000Z
pods        broker 3 of 3 ready, etcd 3 of 3 ready

REPLICA           VERSION  MEMBERS
sealane-broker-0  0.1.0    1
b                 -        0

ETCD     VERSION  MIB  STATE
e1:2379  3.5.21   1.0  ok
e2:2379  3.5.21   1.0  no leader
e3:2379  -        -    no answer

DEGRADED  etcd at e3:2379: no connection
`,
  )
})

t.test('some are not', async (t) => {
  const [first, ...others] = three('broker')
  const admin = await hub(t, 'replicas', [
    pod('broker', 0, false, 'no such image'),
    ...others,
    ...three('etcd').slice(0, 1),
  ])
  t.strictSame(texts(await look(admin)), [
    'degraded: 2 of 3 pods of broker are ready',
    'degraded: pod sealane-broker-0: no such image',
    'down: 1 of 3 pods of etcd are ready',
    'degraded: etcd at e3:2379: no connection',
  ])
  t.same(admin.done, ['forward sealane-broker/sealane-broker-1 7444'], 'one that is ready is asked')
  t.ok(first)
})

t.test('none is ready: one that runs is asked', async (t) => {
  const admin = await hub(t, 'own', [pod('broker', 0, false)])
  t.match(texts(await look(admin)), [
    'down: 0 of 1 pods of broker are ready',
    'degraded: etcd at e3:2379: no connection',
  ])
  const none = await hub(t, 'own', [])
  t.strictSame(texts(await look(none)), ['down: 0 of 1 pods of broker are ready'])
  t.strictSame(none.done, [], 'nobody can be asked')
})

t.test('a pod that does not serve its status, or does not answer', async (t) => {
  const admin = await hub(t, 'own', [pod('broker', 0, true)])
  const socket = await servedAdmin(t, { status: () => Promise.reject(new Error('the disk is full')) })
  admin.dial = () => dialSocket(socket)
  const said =
    'degraded: pod sealane-broker-0 did not report its status: the broker of context "c1" of kubeconfig answered: '
  t.strictSame(texts(await look(admin)), [`${said}the disk is full`])
  admin.dial = () => Promise.reject(new Error('no answer within 60 s'))
  t.strictSame(texts(await look(admin)), [
    'degraded: pod sealane-broker-0 did not report its status: no answer within 60 s',
  ])
})

t.test('no broker', async (t) => {
  t.match(await messageOf(look(new MemoryAdmin())), /no broker is installed/)
})
