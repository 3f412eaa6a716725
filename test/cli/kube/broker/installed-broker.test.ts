/**
 * A broker that is already installed: `broker deploy` keeps its settings, lists the changes, and replaces pods that are
 * stuck.
 */
import t from 'tap'
import { replaceStuckPods } from '../../../../cli/broker/deploy/broker-rollout.ts'
import { withOptions } from '../../../../cli/broker/deploy/deploy-options.ts'
import { deployBroker } from '../../../../cli/broker/deploy/deploy-broker.ts'
import {
  SERVE_FLAGS,
  changedValues,
  installedBroker,
  keepInstalled,
  unknownArgs,
  withThisRelease,
} from '../../../../cli/broker/deploy/installed-broker.ts'
import { buildProgram } from '../../../../cli/program.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { EXTERNAL_TRAFFIC_POLICY, TOPOLOGY_FROM, planBroker } from '../../../../install/plan-broker.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../../install/values/install-values.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { failure } from '../../../support/failure.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'

const { signal } = new AbortController()
const NAMESPACE = 'sealane-broker'

/** Values that all differ from the defaults. */
const OWN: InstallValues = {
  ...DEFAULT_VALUES,
  image: { repository: 'r.example.org:5000/tools/sealane', tag: '9', pullPolicy: 'Always' },
  imagePullSecrets: [{ name: 'key' }],
  logLevel: 'debug',
  broker: {
    ...DEFAULT_VALUES.broker,
    advertise: ['a.example.org:1', 'b.example.org:2'],
    clusterset: 'prod',
    topologyFrom: 'object',
    extraArgs: ['--allow-namespace=kube-tools', '--allow-namespace=kube-web', '--global-range=242.0.0.0/8'],
    service: { type: 'NodePort', annotations: {}, loadBalancerClass: 'mine', externalTrafficPolicy: 'Local' },
    storage: { size: '5Gi', storageClassName: 'fast' },
    resources: { requests: { cpu: '1' } },
    nodeSelector: { disk: 'ssd' },
    tolerations: [{ key: 'hub', operator: 'Exists' }],
    priorityClassName: 'hub-critical',
  },
}

const objectsOf = (values: InstallValues): readonly ManifestObject[] =>
  planBroker(values).flatMap((part) => part.objects)

t.test('everything that was said is read back from the objects', async (t) => {
  const earlier = await installedBroker(new MemoryAdmin(objectsOf(OWN)), NAMESPACE, signal)
  t.strictSame(keepInstalled(DEFAULT_VALUES, earlier), OWN)
  t.strictSame(changedValues(OWN, keepInstalled(DEFAULT_VALUES, earlier)), [])
  const nothing = await installedBroker(new MemoryAdmin(), NAMESPACE, signal)
  const empty = { ...DEFAULT_VALUES, broker: { ...DEFAULT_VALUES.broker, advertise: [] } }
  t.strictSame(keepInstalled(DEFAULT_VALUES, nothing), empty, 'nothing is advertised before there is a Service')
})

t.test('a NetworkPolicy that was switched off stays so; a broker of a release without them gets one', async (t) => {
  const rows: readonly (readonly [tag: string, networkPolicies: boolean, want: boolean])[] = [
    ['9', true, true],
    ['9', false, false],
    [DEFAULT_VALUES.image.tag, false, false],
    ['0.0.9', false, true],
  ]
  for (const [tag, networkPolicies, want] of rows) {
    const said = { ...OWN, image: { ...OWN.image, tag }, broker: { ...OWN.broker, networkPolicies } }
    const earlier = await installedBroker(new MemoryAdmin(objectsOf(said)), NAMESPACE, signal)
    t.equal(keepInstalled(DEFAULT_VALUES, earlier).broker.networkPolicies, want, `${tag} ${networkPolicies}`)
  }
})

t.test('flags change what they name, and that is told', (t) => {
  const rows: readonly (readonly [string, Parameters<typeof withOptions>[1], readonly string[]])[] = [
    ['nothing', {}, []],
    [
      'the image',
      { image: 'localhost/sealane:10' },
      ['image.repository: r.example.org:5000/tools/sealane → localhost/sealane', 'image.tag: 9 → 10'],
    ],
    ['the policy', { imagePullPolicy: 'Never' }, ['image.pullPolicy: Always → Never']],
    ['the secrets', { imagePullSecret: ['other'] }, ['imagePullSecrets: [{"name":"key"}] → [{"name":"other"}]']],
    [
      'the address',
      { advertise: ['c.example.org:3'] },
      ['broker.advertise: ["a.example.org:1","b.example.org:2"] → ["c.example.org:3"]'],
    ],
    [
      'the address, found anew',
      { advertise: ['auto'] },
      ['broker.advertise: ["a.example.org:1","b.example.org:2"] → nothing'],
    ],
    [
      'the way in, and so the address',
      { serviceType: 'LoadBalancer' },
      [
        'broker.advertise: ["a.example.org:1","b.example.org:2"] → nothing',
        'broker.service.type: NodePort → LoadBalancer',
        'broker.service.externalTrafficPolicy: Local → nothing',
      ],
    ],
    ['what sets the topology', { topologyFrom: 'commands' }, ['broker.topologyFrom: object → commands']],
    ['the same again', { serviceType: 'NodePort', storageClass: 'fast', clusterset: 'prod' }, []],
  ]
  for (const [what, chosen, want] of rows) t.strictSame(changedValues(OWN, withOptions(OWN, chosen)), want, what)
  t.end()
})

t.test('an image of an earlier release moves to this one, and that is told', async (t) => {
  const { tag } = DEFAULT_VALUES.image
  const own = (image: Partial<InstallValues['image']>): InstallValues => ({ ...OWN, image: { ...OWN.image, ...image } })
  const SHA = '0'.repeat(64)
  const rows: readonly (readonly [string, InstallValues, readonly string[]])[] = [
    ['an earlier release', own({ tag: '0.0.9' }), [`image.tag: 0.0.9 → ${tag}`]],
    ['with a v', own({ tag: 'v0.0.9' }), [`image.tag: v0.0.9 → v${tag}`]],
    ['this release', own({ tag }), []],
    ['a later one', own({ tag: '999.0.0' }), []],
    ['a tag that is no release', own({ tag: 'mine' }), []],
    ['a digest', own({ repository: 'r.example.org/sealane@sha256', tag: SHA }), []],
  ]
  for (const [what, values, want] of rows) t.strictSame(changedValues(values, withThisRelease(values)), want, what)
  const says = async (tagThere: string, chosen: Parameters<typeof withOptions>[1]): Promise<string> => {
    const admin = new MemoryAdmin(objectsOf(own({ tag: tagThere })))
    const said: string[] = []
    const init = { chosen, force: true, dryRun: true, flags: '', timeoutMs: 1000, clock: new FakeClock(), signal }
    await deployBroker(admin, { ...init, say: (text) => said.push(text), report: () => undefined })
    return said.join('')
  }
  const changes = 'a broker is already installed: these settings change\n'
  t.equal(await says('0.0.9', {}), `${changes}  image.tag: 0.0.9 → ${tag}\n`)
  t.equal(await says('9', {}), 'a broker is already installed: its settings are kept\n')
  const image = 'r.example.org:5000/tools/sealane:0.0.8'
  t.equal(await says('0.0.9', { image }), `${changes}  image.tag: 0.0.9 → 0.0.8\n`, 'who names one gets it')
})

/** Returns a cluster in which an administrator changed the arguments by hand. */
function started(args: readonly string[], values = OWN): MemoryAdmin {
  const objects = objectsOf(values).map((object) => {
    if (object.kind !== 'StatefulSet') return object
    // An address such as [::] is within quotes.
    const text = JSON.stringify(object).replace(/"args":\[(?:"[^"]*",?)*\]/, `"args":${JSON.stringify(args)}`)
    return JSON.parse(text) as ManifestObject
  })
  return new MemoryAdmin(objects)
}

const PLANNED = ['broker', 'serve', '--state', '/var/lib/sealane/broker', '--listen', '[::]:7443']
const STATUS = ['--status-listen', '[::]:9470']

t.test('arguments that no value stands for are kept, whoever wrote them', async (t) => {
  const rows: readonly (readonly [what: string, more: readonly string[], kept: readonly string[]])[] = [
    ['nothing more', STATUS, []],
    ['places of an earlier release', ['--listen', '0.0.0.0:7443', '--status-listen=0.0.0.0:9470'], []],
    [
      'apart',
      ['--allow-namespace', 'kube-a', '--allow-namespace', 'kube-b'],
      ['--allow-namespace=kube-a', '--allow-namespace=kube-b'],
    ],
    ['together', ['--global-range=242.0.0.0/8'], ['--global-range=242.0.0.0/8']],
    [
      'both',
      ['--clusterset-ip-range', '243.0.0.0/8', '--global-range=242.0.0.0/8'],
      ['--clusterset-ip-range=243.0.0.0/8', '--global-range=242.0.0.0/8'],
    ],
    ['one place more', [...STATUS, '--status-listen', '127.0.0.1:1'], ['--status-listen=127.0.0.1:1']],
    ['another folder', ['--state', '/var/lib/sealane/own'], ['--state=/var/lib/sealane/own']],
    ['what values say', ['--advertise=a:1', '--clusterset', 'prod', '--log-level', 'debug'], []],
    ['the policy that the Service has', ['--external-traffic-policy', 'Local'], []],
    ['another policy', ['--external-traffic-policy', 'Cluster'], ['--external-traffic-policy=Cluster']],
  ]
  for (const [what, more, kept] of rows) {
    const earlier = await installedBroker(started([...PLANNED, ...more]), NAMESPACE, signal)
    const values = keepInstalled(DEFAULT_VALUES, earlier)
    t.strictSame(values.broker.extraArgs, kept, what)
    t.strictSame(unknownArgs(earlier), [], what)
    const again = await installedBroker(new MemoryAdmin(objectsOf(values)), NAMESPACE, signal)
    t.strictSame(keepInstalled(DEFAULT_VALUES, again), values, `${what}: and the next time`)
  }
  const service = { ...OWN.broker.service, type: 'NodePort' }
  const reported = { ...OWN, broker: { ...OWN.broker, service, extraArgs: ['--external-traffic-policy=Cluster'] } }
  t.strictSame(withOptions(reported, { serviceType: 'NodePort' }).broker.extraArgs, [
    '--external-traffic-policy=Cluster',
  ])
  t.strictSame(
    withOptions(reported, { serviceType: 'LoadBalancer' }).broker.extraArgs,
    [],
    'it was that of the other type',
  )
})

t.test('a second deploy hands on what the first start was told', async (t) => {
  const admin = started([
    ...PLANNED,
    '--advertise',
    'a:1',
    '--allow-namespace',
    'kube-a',
    '--global-range',
    '242.0.0.0/8',
  ])
  const none = (): void => undefined
  const init = { chosen: {}, force: true, dryRun: false, flags: '', timeoutMs: 0, clock: new FakeClock(), signal }
  await deployBroker(admin, { ...init, say: none, report: none }).catch(none)
  t.ok(admin.done.includes('apply StatefulSet sealane-broker/sealane-broker'))
  const text = JSON.stringify(await admin.list('apps/v1', 'StatefulSet', {}))
  t.match(text, '"--allow-namespace=kube-a","--global-range=242.0.0.0/8"')
})

t.test('arguments that this release does not know are refused, or left out by force', async (t) => {
  const args = [
    ...PLANNED,
    '--shiny',
    'yes',
    '--new=1',
    '--advertise',
    'a:1',
    '--bare',
    '--allow-namespace',
    'kube-a',
    'word',
  ]
  t.strictSame(unknownArgs(await installedBroker(started(args), NAMESPACE, signal)), [
    '--shiny yes',
    '--new=1',
    '--bare',
    'word',
  ])
  for (const force of [false, true]) {
    const admin = started(args)
    let said = ''
    const init = { chosen: {}, force, dryRun: true, flags: '', timeoutMs: 1000, clock: new FakeClock(), signal }
    const say = (text: string) => void (said += text)
    const deployed = deployBroker(admin, { ...init, say, report: () => undefined })
    const text =
      'the installed broker has arguments that this release does not know: --shiny yes, --new=1, --bare, word'
    if (force) {
      t.strictSame(await deployed, ['a:1'])
      t.match(said, `${text}; they are removed\n`)
    } else {
      const error = await failure(deployed)
      t.match(error, {
        message: `context "c1" of kubeconfig: ${text}`,
        hint: /--force remove them; nothing was changed$/,
      })
      t.strictSame(
        admin.done.filter((line) => line.startsWith('apply')),
        [],
        'nothing was changed',
      )
    }
  }
})

t.test('a broker that follows object Topology: its kind and its right come before it starts', async (t) => {
  const none = (): void => undefined
  const deployed = async (admin: MemoryAdmin, topologyFrom: 'commands' | 'object'): Promise<readonly string[]> => {
    const chosen = { topologyFrom, advertise: ['a.example.org:1'] }
    const init = { chosen, force: true, dryRun: true, flags: '', timeoutMs: 1000, clock: new FakeClock(), signal }
    await deployBroker(admin, { ...init, say: none, report: none })
    return admin.done.flatMap((line) => /^apply (?:Custom|ClusterRole|StatefulSet).*(?= \(dry\))/.exec(line) ?? [])
  }
  t.same(await deployed(new MemoryAdmin(), 'commands'), ['apply StatefulSet sealane-broker/sealane-broker'])
  t.same(await deployed(new MemoryAdmin(), 'object'), [
    'apply CustomResourceDefinition topologies.sealane.io',
    'apply ClusterRole sealane-broker',
    'apply ClusterRoleBinding sealane-broker',
    'apply StatefulSet sealane-broker/sealane-broker',
  ])
  // It grants its own rights, so who installs it must have them.
  for (const right of ['create clusterroles', 'watch topologies', 'patch topologies/status']) {
    const lacking = new MemoryAdmin()
    lacking.denied.add(right)
    await t.rejects(deployed(lacking, 'object'), new RegExp(right), right)
  }
  const poor = new MemoryAdmin()
  poor.denied.add('create clusterroles')
  await t.rejects(deployed(poor, 'object'), /create clusterroles/)
  t.same(await deployed(poor, 'commands'), ['apply StatefulSet sealane-broker/sealane-broker'], 'it needs none of that')
})

t.test('a broker that follows no object any more leaves no right behind', async (t) => {
  const admin = new MemoryAdmin()
  let said = ''
  const deployed = async (topologyFrom: 'commands' | 'object'): Promise<unknown> => {
    const chosen = { topologyFrom, advertise: ['a.example.org:1'] }
    const init = { chosen, force: true, dryRun: false, flags: '', timeoutMs: 0, clock: new FakeClock(), signal }
    const say = (text: string): void => void (said += text)
    // No controller makes the pods.
    return failure(deployBroker(admin, { ...init, say, report: () => undefined }))
  }
  const rights = async (): Promise<readonly string[]> => {
    const kinds = ['ClusterRole', 'ClusterRoleBinding']
    const all = await Promise.all(kinds.map((kind) => admin.list('rbac.authorization.k8s.io/v1', kind, {})))
    return all.flat().map(({ kind, metadata }) => `${kind} ${metadata.name}`)
  }
  await deployed('object')
  t.same(await rights(), ['ClusterRole sealane-broker', 'ClusterRoleBinding sealane-broker'])
  admin.denied.add('delete clusterroles')
  t.match(await deployed('commands'), { message: /may not delete clusterroles/ })
  t.equal((await rights()).length, 2)
  admin.denied.clear()
  await deployed('commands')
  t.same(await rights(), [])
  t.match(said, /removed {3}ClusterRoleBinding sealane-broker [^\n]*\n {2}removed {3}ClusterRole sealane-broker /)
  said = ''
  await deployed('commands')
  t.notMatch(said, /removed/)
})

t.test('the flags that are carried are those that there are', (t) => {
  const broker = buildProgram(signal).commands.find((one) => one.name() === 'broker')
  const serve = broker?.commands.find((one) => one.name() === 'serve')
  const flags = (serve?.options ?? []).map(({ long }) => long)
  const policy = serve?.options.find(({ long }) => long === '--external-traffic-policy')
  t.equal(policy?.envVar, EXTERNAL_TRAFFIC_POLICY, 'what the plan hands over is what is read')
  t.equal(serve?.options.find(({ long }) => long === '--topology-from')?.envVar, TOPOLOGY_FROM)
  t.strictSame([...SERVE_FLAGS].sort(), flags.sort())
  t.ok(
    serve?.options.every(({ required, optional }) => required || optional),
    'each has a value, or may have one',
  )
  t.end()
})

const HASH = 'controller-revision-hash'

function pod(name: string, revision: string, ready: 'True' | 'False', more: object = {}): ManifestObject {
  const labels = { 'app.kubernetes.io/name': 'sealane', 'app.kubernetes.io/component': 'broker', [HASH]: revision }
  const metadata = { name, namespace: NAMESPACE, labels, ...more }
  return { apiVersion: 'v1', kind: 'Pod', metadata, status: { conditions: [{ type: 'Ready', status: ready }] } }
}

t.test('a pod of an earlier version that is not ready makes place', async (t) => {
  const statefulSet = (observedGeneration: number): ManifestObject =>
    ({
      apiVersion: 'apps/v1',
      kind: 'StatefulSet',
      metadata: { name: 'sealane-broker', namespace: NAMESPACE, generation: 2 },
      status: { observedGeneration, updateRevision: 'new' },
    }) as unknown as ManifestObject
  const GOING = { deletionTimestamp: '2026-01-01T00:00:00Z' }
  const rows: readonly (readonly [what: string, objects: readonly ManifestObject[], removed: readonly string[]])[] = [
    ['stuck', [statefulSet(2), pod('a', 'old', 'False')], ['a']],
    ['ready: the controller replaces it', [statefulSet(2), pod('a', 'old', 'True')], []],
    ['of this version', [statefulSet(2), pod('a', 'new', 'False')], []],
    ['goes already', [statefulSet(2), pod('a', 'old', 'False', GOING)], []],
    ['the controller has not looked yet', [statefulSet(1), pod('a', 'old', 'False')], []],
    ['no controller', [pod('a', 'old', 'False')], []],
  ]
  for (const [what, objects, removed] of rows) {
    t.strictSame(await replaceStuckPods(new MemoryAdmin(objects), NAMESPACE, signal), removed, what)
  }
})

t.test('what a volume and a database hold is not changed by a flag', async (t) => {
  const bound = objectsOf(OWN).map((object) =>
    object.kind === 'PersistentVolumeClaim' ? { ...object, status: { phase: 'Bound' } } : object,
  )
  for (const [chosen, want] of [
    [
      { clusterset: 'other' },
      /--clusterset other: .* its clusterset is prod and cannot be changed after the first start/,
    ],
    [{ storageClass: 'slow' }, /--storage-class slow: .* its volume has StorageClass fast/],
  ] as const) {
    const admin = new MemoryAdmin(bound)
    const none = (): void => undefined
    const init = { chosen, force: true, dryRun: false, flags: '', timeoutMs: 1000, clock: new FakeClock(), signal }
    t.match(await failure(deployBroker(admin, { ...init, say: none, report: none })), { message: want })
    t.strictSame(admin.done, [], 'nothing was changed')
  }
})
