/**
 * `sealane broker deploy --replicas 3`: the objects that it applies, the values that it reads back, and the changes of
 * a second run.
 */
import { X509Certificate } from 'node:crypto'
import t from 'tap'
import { type BrokerOptions, withOptions } from '../../../../cli/broker/deploy/deploy-options.ts'
import { deployBroker } from '../../../../cli/broker/deploy/deploy-broker.ts'
import { changedValues, installedBroker, keepInstalled } from '../../../../cli/broker/deploy/installed-broker.ts'
import { volumeGap } from '../../../../cli/broker/deploy/plan-broker-place.ts'
import { ETCD_CA_SECRET, etcdSecrets, requireEtcdLogin } from '../../../../cli/broker/deploy/etcd-secrets.ts'
import { ETCD_CLIENT_SECRET, ETCD_SERVER_SECRET } from '../../../../install/values/names.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { planBroker } from '../../../../install/plan-broker.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../../install/values/install-values.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { UserError } from '../../../../runtime/errors.ts'
import { failure } from '../../../support/failure.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'

const { signal } = new AbortController()
const NAMESPACE = 'sealane-broker'
const DAY = 24 * 3_600_000

const objectsOf = (values: InstallValues): readonly ManifestObject[] =>
  planBroker(values).flatMap((part) => part.objects)

/** The values that a Service has by default on an API server. */
const LOCAL: InstallValues = {
  ...DEFAULT_VALUES,
  broker: {
    ...DEFAULT_VALUES.broker,
    service: { ...DEFAULT_VALUES.broker.service, externalTrafficPolicy: 'Local' },
  },
}

/** Tokens can only name addresses if the broker advertises some. */
const chosen = (options: BrokerOptions): InstallValues =>
  withOptions(LOCAL, { advertise: ['a.example.org:7443', 'b.example.org:7443'], ...options })

async function deployed(admin: MemoryAdmin, options: BrokerOptions): Promise<string> {
  const said: string[] = []
  const init = { chosen: options, force: true, dryRun: true, flags: '--context hub', timeoutMs: 1000, signal }
  await deployBroker(admin, {
    ...init,
    clock: new FakeClock(),
    say: (text) => said.push(text),
    report: () => undefined,
  })
  return said.join('')
}

t.test('both forms of replicas are read back as they were said', async (t) => {
  const rows: readonly (readonly [string, BrokerOptions])[] = [
    ['included', { replicas: 3, storageClass: 'fast', etcdStorageSize: '20Gi', etcdImage: 'r.example.org/etcd:3.6.1' }],
    ['given', { replicas: 4, etcdEndpoints: ['h1:2379', 'h2:2379'], etcdSecret: 'login' }],
    ['given, with a password', { etcdEndpoints: ['h1:2379'], etcdUser: 'hub', etcdPrefix: '/hub' }],
  ]
  for (const [what, options] of rows) {
    const values = chosen({ ...options, allowNamespace: ['kube-tools'] })
    const admin = new MemoryAdmin(objectsOf(values))
    const kept = keepInstalled(DEFAULT_VALUES, await installedBroker(admin, NAMESPACE, signal))
    t.same(changedValues(values, kept), [], what)
    t.same(changedValues(values, withOptions(kept, options)), [], `${what}: and the same command once more`)
  }
})

t.test('what is applied, in which order', async (t) => {
  const admin = new MemoryAdmin()
  await deployed(admin, { replicas: 3, serviceType: 'ClusterIP' })
  t.same(
    admin.done.filter((line) => line.startsWith('apply ')).map((line) => line.slice(6, -6)),
    [
      'Namespace sealane-broker',
      'Service sealane-broker/sealane-broker',
      'Service sealane-broker/sealane-etcd',
      'Secret sealane-broker/sealane-etcd-ca',
      'Secret sealane-broker/sealane-etcd-server',
      'Secret sealane-broker/sealane-etcd-client',
      'ServiceAccount sealane-broker/sealane-broker',
      'Deployment sealane-broker/sealane-broker',
      'PodDisruptionBudget sealane-broker/sealane-broker',
      'NetworkPolicy sealane-broker/sealane-broker',
      'ServiceAccount sealane-broker/sealane-etcd',
      'StatefulSet sealane-broker/sealane-etcd',
      'PodDisruptionBudget sealane-broker/sealane-etcd',
      'NetworkPolicy sealane-broker/sealane-etcd',
    ],
  )
  const given = new MemoryAdmin()
  await deployed(given, { etcdEndpoints: ['h1:2379'] })
  t.notOk(
    given.done.some((line) => /etcd|PersistentVolumeClaim|StatefulSet/.test(line)),
    'nothing of an etcd of ours',
  )
})

t.test('who may not make it hears so first', async (t) => {
  const admin = new MemoryAdmin()
  admin.denied.add('patch secrets')
  t.match((await failure(deployed(admin, { replicas: 3 }))).message, /this user may not patch secrets/)
  await deployed(admin, {})
  await deployed(admin, { etcdEndpoints: ['h1:2379'] })
})

t.test('a broker with a volume of its own does not become replicas by this command, nor back', async (t) => {
  const own = new MemoryAdmin(objectsOf(chosen({})))
  for (const options of [{ replicas: 3 }, { etcdEndpoints: ['h1:2379'] }]) {
    const error = await failure(deployed(own, options))
    t.ok(error instanceof UserError && error.hint?.includes('the same command with --move'))
  }
  t.same(
    own.done.filter((line) => line.startsWith('apply')),
    [],
    'nothing was changed',
  )
  const claim = objectsOf(chosen({})).filter(({ kind }) => kind === 'PersistentVolumeClaim')
  t.match(
    (await failure(deployed(new MemoryAdmin(claim), { replicas: 3 }))).message,
    'which would start with an empty state',
  )
  const three = new MemoryAdmin(objectsOf(chosen({ replicas: 3 })))
  const error = await failure(deployed(three, { replicas: 1 }))
  t.ok(error instanceof UserError && error.hint?.includes('the same command with --move'))
  t.match(await deployed(three, { replicas: 5 }), 'broker.replicas: 3 → 5')
  t.match(await deployed(three, {}), 'its settings are kept')
})

t.test('data that an uninstall left: the next deploy goes on with it, and with nothing else', async (t) => {
  const claim = {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name: 'data-sealane-etcd-0', namespace: NAMESPACE },
  }
  const admin = new MemoryAdmin([claim])
  await deployed(admin, {})
  t.ok(admin.done.includes('apply StatefulSet sealane-broker/sealane-etcd (dry)'))
  t.match((await failure(deployed(admin, { replicas: 1 }))).message, 'which would start with an empty state')
})

t.test('certificates are made once, and anew when half of their time is over', async (t) => {
  const nowMs = Date.parse('2026-11-25T12:00:00Z')
  const admin = new MemoryAdmin()
  const made = await etcdSecrets(admin, { namespace: NAMESPACE, nowMs }, signal)
  t.same(
    made.map(({ metadata }) => metadata.name),
    [ETCD_CA_SECRET, ETCD_SERVER_SECRET, ETCD_CLIENT_SECRET],
  )
  for (const one of made) admin.put(one)
  const part = (name: string, key: string): string => {
    const secret = made.find(({ metadata }) => metadata.name === name) as unknown as { data: Record<string, string> }
    return Buffer.from(secret.data[key] ?? '', 'base64').toString()
  }
  const ca = new X509Certificate(part(ETCD_CA_SECRET, 'ca.crt'))
  const server = new X509Certificate(part(ETCD_SERVER_SECRET, 'tls.crt'))
  const client = new X509Certificate(part(ETCD_CLIENT_SECRET, 'tls.crt'))
  t.ok(ca.ca && server.checkIssued(ca) && client.checkIssued(ca) && server.verify(ca.publicKey))
  for (const i of [0, 1, 2]) t.ok(server.checkHost(`sealane-etcd-${i}.sealane-etcd.sealane-broker.svc`))
  t.equal(server.checkHost('sealane-etcd-0.sealane-etcd.other.svc'), undefined)
  t.same([server.subject, client.subject], ['CN=sealane-etcd', 'CN=sealane-broker'])
  t.same(client.keyUsage, ['1.3.6.1.5.5.7.3.2'], 'a client is never a member')
  t.notOk(
    part(ETCD_CLIENT_SECRET, 'ca.key') + part(ETCD_SERVER_SECRET, 'ca.key'),
    'no pod has the key of the authority',
  )
  t.same(await etcdSecrets(admin, { namespace: NAMESPACE, nowMs: nowMs + 900 * DAY }, signal), [])
  const later = await etcdSecrets(admin, { namespace: NAMESPACE, nowMs: nowMs + 920 * DAY }, signal)
  t.same(
    later.map(({ metadata }) => metadata.name),
    [ETCD_SERVER_SECRET, ETCD_CLIENT_SECRET],
    'by the same authority',
  )
})

t.test('Secrets of somebody else are left alone; half of them is refused', async (t) => {
  const of = (name: string): ManifestObject => ({
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name, namespace: NAMESPACE },
    data: { 'ca.crt': 'YQ==' },
  })
  const init = { namespace: NAMESPACE, nowMs: 0 }
  t.same(await etcdSecrets(new MemoryAdmin([of(ETCD_SERVER_SECRET), of(ETCD_CLIENT_SECRET)]), init, signal), [])
  t.match(
    (await failure(etcdSecrets(new MemoryAdmin([of(ETCD_SERVER_SECRET)]), init, signal))).message,
    /sealane-etcd-client does not$/,
  )
  t.match(
    (await failure(etcdSecrets(new MemoryAdmin([of(ETCD_CA_SECRET)]), init, signal))).message,
    /expected ca.crt and ca.key/,
  )
})

t.test('an etcd that was given: its login must be there', async (t) => {
  const secret = (keys: readonly string[]): MemoryAdmin =>
    new MemoryAdmin([
      {
        apiVersion: 'v1',
        kind: 'Secret',
        metadata: { name: 'login', namespace: NAMESPACE },
        data: Object.fromEntries(keys.map((key) => [key, 'YQ=='])),
      },
    ])
  const rows = [
    [[], 'certificate', 'it lacks ca.crt and tls.crt and tls.key'],
    [['ca.crt', 'tls.crt'], 'certificate', 'it lacks tls.key'],
    [['ca.crt', 'tls.crt', 'tls.key'], 'password', 'it lacks password'],
  ] as const
  for (const [keys, login, want] of rows) {
    const error = await failure(requireEtcdLogin(secret(keys), { namespace: NAMESPACE, name: 'login', login }, signal))
    t.ok(error.message.endsWith(want), error.message)
  }
  await requireEtcdLogin(
    secret(['ca.crt', 'password']),
    { namespace: NAMESPACE, name: 'login', login: 'password' },
    signal,
  )
  const none = requireEtcdLogin(new MemoryAdmin(), { namespace: NAMESPACE, name: 'login', login: 'password' }, signal)
  t.match((await failure(none)).message, /it does not exist$/)
})

t.test('volumes of the included etcd', async (t) => {
  const world = {
    services: undefined,
    nodes: undefined,
    addressPools: undefined,
    workloads: undefined,
    claim: undefined,
  }
  const volumes = Array.from({ length: 3 }, (_, i) => ({
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: { name: `v${i}` },
    spec: { accessModes: ['ReadWriteOnce'], capacity: { storage: '8Gi' } },
    status: { phase: 'Available' },
  }))
  const three = chosen({ replicas: 3 })
  t.equal(volumeGap(three, { ...world, storageClasses: [], volumes }), undefined)
  t.match(
    volumeGap(three, { ...world, storageClasses: [], volumes: volumes.slice(1) })?.what,
    'fewer than 3 PersistentVolumes',
  )
  t.equal(volumeGap(chosen({ etcdEndpoints: ['h1:1'] }), { ...world, storageClasses: [], volumes: [] }), undefined)
})
