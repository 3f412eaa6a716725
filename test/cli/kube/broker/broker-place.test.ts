/**
 * The requirements of a broker that a cluster does not meet. `broker deploy` reports them before it changes anything,
 * as one list and one command.
 */
import t from 'tap'
import { requirePlace } from '../../../../cli/broker/deploy/broker-place.ts'
import { type BrokerOptions, deployCommand, withOptions } from '../../../../cli/broker/deploy/deploy-options.ts'
import { addressGap, loadBalancerSign, volumeGap } from '../../../../cli/broker/deploy/plan-broker-place.ts'
import { parseQuantity } from '../../../../cli/installation/quantity.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../../install/values/install-values.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { UserError } from '../../../../runtime/errors.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'
import { nodeObject } from '../../../support/objects/node-objects.ts'

const NONE = {
  services: [],
  nodes: [],
  addressPools: [],
  workloads: [],
  storageClasses: [],
  volumes: [],
  claim: undefined,
}

function object(kind: string, name: string, more: object = {}, apiVersion = 'v1'): ManifestObject {
  return { apiVersion, kind, metadata: { name }, ...more }
}

const node = (providerID?: string, annotations: Readonly<Record<string, string>> = {}): ManifestObject => ({
  ...nodeObject('n1', { metadata: { annotations } }),
  spec: providerID === undefined ? {} : { providerID },
})

const balanced = (type: string, ingress: object[]): ManifestObject =>
  object('Service', 'web', { spec: { type }, status: { loadBalancer: { ingress } } })

const values = (change: Partial<InstallValues['broker']> = {}): InstallValues => ({
  ...DEFAULT_VALUES,
  broker: { ...DEFAULT_VALUES.broker, advertise: [], ...change },
})

t.test('signs of something that gives addresses to Services', (t) => {
  const rows: readonly (readonly [what: string, world: object, sign: boolean])[] = [
    ['nothing', {}, false],
    ['a Service that has one', { services: [balanced('LoadBalancer', [{ ip: '192.0.2.9' }])] }, true],
    ['a Service that has none', { services: [balanced('LoadBalancer', [])] }, false],
    ['a Service of another type', { services: [balanced('NodePort', [{ ip: '192.0.2.9' }])] }, false],
    ['nodes of a cloud', { nodes: [node(), node('aws:///eu-west-1a/i-1')] }, true],
    ['nodes of kind', { nodes: [node('kind://docker/kind/kind-control-plane')] }, false],
    ['nodes of k3s', { nodes: [node('k3s://n1')] }, true],
    [
      'nodes of k3s without its load balancer',
      { nodes: [node('k3s://n1', { 'k3s.io/node-args': '["server","--disable","servicelb"]' })] },
      false,
    ],
    ['an address pool', { addressPools: [object('IPAddressPool', 'first')] }, true],
    ['its program', { workloads: [object('Deployment', 'openstack-cloud-controller-manager')] }, true],
    ['another program', { workloads: [object('Deployment', 'web')] }, false],
    ['what may not be read', { services: undefined, nodes: undefined }, true],
  ]
  for (const [what, world, sign] of rows) {
    t.equal(loadBalancerSign({ ...NONE, ...world }) !== undefined, sign, what)
    t.equal(addressGap(values(), { ...NONE, ...world }, false) === undefined, sign, `${what}: gap`)
  }
  t.equal(addressGap(values(), NONE, true), undefined, 'who asks for it by name waits for it')
  t.equal(addressGap(values({ advertise: ['192.0.2.1:7443'] }), NONE, false), undefined, 'nothing is waited for')
  const nodePort = withOptions(values(), { serviceType: 'NodePort' })
  t.equal(addressGap(nodePort, NONE, false), undefined)
  t.end()
})

const volume = (storage: string, more: object = {}, phase = 'Available'): ManifestObject =>
  object('PersistentVolume', 'disk', {
    spec: { capacity: { storage }, accessModes: ['ReadWriteOnce'], ...more },
    status: { phase },
  })
const claim = (phase: string): ManifestObject =>
  object('PersistentVolumeClaim', 'sealane-broker-data', { status: { phase } })
const classOf = (name: string, standard = 'false'): ManifestObject => ({
  ...object('StorageClass', name),
  metadata: { name, annotations: { 'storageclass.kubernetes.io/is-default-class': standard } },
})

t.test('volumes: a default class, a free one, or one that is bound already', (t) => {
  const OTHER = { claimRef: { namespace: 'shop', name: 'db' } }
  const OWN = { claimRef: { namespace: 'sealane-broker', name: 'sealane-broker-data' } }
  const rows: readonly (readonly [
    what: string,
    world: object,
    wanted: string,
    flags: readonly string[] | undefined,
  ])[] = [
    ['nothing', {}, '', []],
    ['a default class', { storageClasses: [classOf('slow'), classOf('fast', 'true')] }, '', undefined],
    ['one class, no default', { storageClasses: [classOf('fast')] }, '', ['--storage-class', 'fast']],
    ['several, no default', { storageClasses: [classOf('b'), classOf('a')] }, '', ['--storage-class', 'NAME']],
    ['the class that is asked for', { storageClasses: [classOf('fast')] }, 'fast', undefined],
    ['a class that is not there', { storageClasses: [classOf('fast')] }, 'quick', ['--storage-class', 'fast']],
    ['a free volume', { volumes: [volume('1Gi')] }, '', undefined],
    ['a free volume that is kept for us', { volumes: [volume('2G', OWN)] }, '', undefined],
    ['a free volume that is kept for another', { volumes: [volume('1Gi', OTHER)] }, '', []],
    ['a free volume that is too small', { volumes: [volume('1000Mi')] }, '', []],
    ['a free volume of a class', { volumes: [volume('1Gi', { storageClassName: 'fast' })] }, '', []],
    ['the same, and it is asked for', { volumes: [volume('1Gi', { storageClassName: 'fast' })] }, 'fast', undefined],
    ['a volume that was used', { volumes: [volume('1Gi', {}, 'Released')] }, '', []],
    ['a volume for reading', { volumes: [volume('1Gi', { accessModes: ['ReadOnlyMany'] })] }, '', []],
    ['a claim that has its volume', { claim: claim('Bound') }, '', undefined],
    ['a claim that has none', { claim: claim('Pending') }, '', []],
    ['what may not be read', { storageClasses: undefined }, '', undefined],
  ]
  for (const [what, world, storageClass, flags] of rows) {
    const gap = volumeGap(withOptions(values(), { storageClass }), { ...NONE, ...world })
    t.strictSame(gap?.flags, flags, what)
  }
  t.end()
})

t.test('quantities', (t) => {
  const rows: readonly (readonly [string, number])[] = [
    ['1Gi', 1_073_741_824],
    ['1G', 1e9],
    ['500m', 0.5],
    ['12e3', 12_000],
    ['0.5Ti', 549_755_813_888],
  ]
  for (const [text, want] of rows) t.equal(parseQuantity(text), want, text)
  for (const text of ['', 'Gi', '1X', '-1Gi']) t.ok(Number.isNaN(parseQuantity(text)), text)
  t.end()
})

const CLOCK = { clock: new FakeClock(), signal: new AbortController().signal, say: () => undefined, dryRun: false }
const bare = (name: string, images: readonly string[] = ['registry.example.org/pause:3']): ManifestObject => ({
  ...nodeObject(name),
  status: { conditions: [{ type: 'Ready', status: 'True' }], images: [{ names: images }] },
})

async function refusal(admin: MemoryAdmin, chosen: BrokerOptions, flags = '--context hub'): Promise<string> {
  try {
    await requirePlace(admin, withOptions(values(), chosen), { ...CLOCK, chosen, flags })
    return ''
  } catch (error) {
    return error instanceof UserError ? `${error.message}\n${error.hint ?? ''}` : String(error)
  }
}

t.test('all that is missing at once, with one command', async (t) => {
  const { tag } = DEFAULT_VALUES.image
  const admin = new MemoryAdmin([
    bare('n1'),
    bare('n2'),
    bare('n3'),
    object('StorageClass', 'fast', {}, 'storage.k8s.io/v1'),
  ])
  t.equal(
    await refusal(admin, {}),
    [
      'the broker cannot be installed on context "c1" of kubeconfig with these settings:',
      '  no load balancer: nothing in this cluster seems to assign addresses to Services of type LoadBalancer (--service-type LoadBalancer waits for one anyway)',
      '  no volume: the cluster has no default StorageClass, and no PersistentVolume without a class with 1Gi is available; available classes: fast',
      `  no image: localhost/sealane:${tag} is not on any of the 3 nodes, and localhost is not a registry, so no node can pull it`,
      `run: sealane broker deploy --context hub --service-type NodePort --storage-class fast --image REGISTRY/sealane:${tag}`,
      'nothing was changed; to install anyway, use --force',
    ].join('\n'),
  )
  t.strictSame(admin.done, [], 'nothing was written')
  t.match(
    await refusal(admin, { storageClass: 'fast', clusterset: 'prod' }, "--kubeconfig 'my file'"),
    `run: sealane broker deploy --kubeconfig 'my file' --clusterset prod --storage-class fast --service-type NodePort --image REGISTRY`,
    'what was said stays said',
  )
  t.match(
    await refusal(admin, { image: 'r.example.org/sealane:1' }),
    /no load balancer: .*\n {2}no volume: [^\n]*\nrun: /,
  )
  t.strictSame(admin.done, [], 'no node is asked for an image while something else is missing')
  const image = `localhost/sealane:${tag}`
  const ready = new MemoryAdmin([bare('n1', [image]), { ...volume('1Gi') }])
  t.equal(await refusal(ready, { serviceType: 'NodePort' }), '')
  t.end()
})

t.test('the command says all again', (t) => {
  const chosen: BrokerOptions = {
    serviceType: 'LoadBalancer',
    advertise: ['a.example.org:1', 'b.example.org:2'],
    image: 'r.example.org/s:1',
    imagePullPolicy: 'Always',
    imagePullSecret: ['a'],
  }
  t.equal(
    deployCommand('--context c', chosen, ['--image', 'x:1']),
    'sealane broker deploy --context c --service-type LoadBalancer --advertise a.example.org:1 --advertise b.example.org:2 ' +
      '--image-pull-policy Always --image-pull-secret a --image x:1',
  )
  t.end()
})

t.test('namespaces that may be exported: beside those that may be already', async (t) => {
  const before = values()
  const first = withOptions(before, { allowNamespace: ['default'] })
  t.strictSame(first.broker.extraArgs, [...before.broker.extraArgs, '--allow-namespace=default'])
  const again = withOptions(first, { allowNamespace: ['default', 'kube-tools'] })
  t.strictSame(again.broker.extraArgs, [...first.broker.extraArgs, '--allow-namespace=kube-tools'])
  t.strictSame(withOptions(again, {}).broker.extraArgs, again.broker.extraArgs)
  t.equal(
    deployCommand('--context c', { allowNamespace: ['default'] }, ['--force']),
    'sealane broker deploy --context c --allow-namespace default --force',
  )
})
