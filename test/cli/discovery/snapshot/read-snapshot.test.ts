/** The requests that read a cluster, the errors that the reader tolerates, and the errors that end it. */
import t from 'tap'
import { ClusterApiError } from '../../../../kubeapi/cluster-api.ts'
import { discover } from '../../../../cli/discovery/discover.ts'
import { type SnapshotReader, readSnapshot } from '../../../../cli/discovery/read-snapshot.ts'
import type { ClusterSnapshot } from '../../../../cli/discovery/snapshot.ts'
import { FIXTURES, fixture } from '../support/fixtures.ts'

interface Raw {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly labels?: Record<string, string> }
}

/** Serves a fixture like an API server: the items of a list have no kind and no apiVersion. */
class FixtureReader implements SnapshotReader {
  readonly asked: string[] = []
  readonly #snapshot: ClusterSnapshot
  readonly #refuse: (what: string) => ClusterApiError | undefined
  constructor(snapshot: ClusterSnapshot, refuse: (what: string) => ClusterApiError | undefined = () => undefined) {
    this.#snapshot = snapshot
    this.#refuse = refuse
  }

  #objects(apiVersion: string, kind: string): readonly Raw[] {
    return (this.#snapshot.objects as readonly Raw[]).filter(
      (one) => one.apiVersion === apiVersion && one.kind === kind,
    )
  }

  #note(what: string): void {
    this.asked.push(what)
    const error = this.#refuse(what)
    if (error !== undefined) throw error
  }

  async get(apiVersion: string, kind: string, name: string, namespace?: string): Promise<unknown> {
    this.#note(`${kind} ${namespace ?? ''}/${name}`)
    const found = this.#objects(apiVersion, kind).find(
      ({ metadata }) => metadata.name === name && metadata.namespace === namespace,
    )
    if (found === undefined) throw new ClusterApiError('NotFound', `${kind} ${name} not found`)
    return found
  }

  async list(
    apiVersion: string,
    kind: string,
    options: { readonly namespace?: string; readonly labelSelector?: string },
  ): Promise<readonly unknown[]> {
    this.#note(`${kind}s`)
    if (kind === 'CustomResourceDefinition') return (this.#snapshot.crds ?? []).map((name) => ({ metadata: { name } }))
    const [key = '', value = ''] = options.labelSelector?.split('=') ?? []
    return this.#objects(apiVersion, kind)
      .filter(({ metadata }) => options.namespace === undefined || metadata.namespace === options.namespace)
      .filter(({ metadata }) => key === '' || metadata.labels?.[key] === value)
      .map(({ apiVersion: _version, kind: _kind, ...rest }) => rest)
  }

  async dryRunCreate(object: object): Promise<unknown> {
    this.#note('dry run')
    const text = this.#snapshot.serviceProbes[0]
    if (text === undefined) return object
    throw new ClusterApiError('Invalid', text)
  }

  async version(): Promise<unknown> {
    this.#note('version')
    return this.#snapshot.version
  }
}

const signal = new AbortController().signal

for (const name of FIXTURES) {
  t.test(`${name}: everything that the detectors need is asked for`, async (t) => {
    const reader = new FixtureReader(fixture(name))
    const read = await readSnapshot(reader, signal)
    t.same(discover(read), discover(fixture(name)))
    t.same(read.unread, [])
    t.equal(
      new Set(reader.asked.filter((what) => what.includes('/'))).size,
      reader.asked.filter((what) => what.includes('/')).length,
    )
  })
}

t.test('the API server is asked for its service range only where no object tells it', async (t) => {
  const asks = async (name: string): Promise<boolean> => {
    const reader = new FixtureReader(fixture(name))
    await readSnapshot(reader, signal)
    return reader.asked.includes('dry run')
  }
  t.equal(await asks('kubeadm-flannel'), false)
  t.equal(await asks('kubeadm-weave'), true)
})

t.test('a user who may read little still gets what can be had', async (t) => {
  const forbidden = new ClusterApiError('Forbidden', 'configmaps is forbidden')
  const refuse = (what: string): ClusterApiError | undefined =>
    what.startsWith('ConfigMap') || what === 'dry run' ? forbidden : undefined
  const found = discover(await readSnapshot(new FixtureReader(fixture('kubeadm-weave'), refuse), signal))
  t.same(found.podCIDRs?.value, ['10.32.0.0/12'])
  t.ok(
    found.warnings.includes(
      'not allowed to read ConfigMap kube-system/kubeadm-config: detection of pod CIDRs, service CIDRs, distribution is less reliable',
    ),
  )
  t.ok(
    found.warnings.includes(
      'not allowed to read the answer to a dry run of a Service: detection of service CIDRs is less reliable',
    ),
  )
  t.same(
    found.asks.map(({ field }) => field),
    ['serviceCIDRs'],
  )
})

t.test('a list that is longer than what is read says so', async (t) => {
  const pod = (i: number) => ({ apiVersion: 'v1', kind: 'Pod', metadata: { name: `p${i}`, namespace: 'shop' } })
  const warningsOf = async (count: number): Promise<readonly string[]> => {
    const weave = fixture('kubeadm-weave')
    const objects = [...weave.objects, ...Array.from({ length: count }, (_, i) => pod(i))]
    const read = await readSnapshot(new FixtureReader({ ...weave, objects }), signal)
    return discover(read).warnings.filter((text) => text.startsWith('Pods'))
  }
  t.strictSame(await warningsOf(1000), [])
  t.strictSame(await warningsOf(2001), [
    'Pods of all namespaces: only the first 2000 were read: detection of pod CIDRs is less reliable',
  ])
})

t.test('CRDs may not be listed: each kind is tried', async (t) => {
  const refuse = (what: string): ClusterApiError | undefined =>
    what.startsWith('CustomResource') ? new ClusterApiError('Forbidden', 'no') : undefined
  const read = await readSnapshot(new FixtureReader(fixture('openshift-ovn'), refuse), signal)
  t.same(discover(read).podCIDRs?.value, ['10.128.0.0/14'])
  t.same(
    read.unread.map(({ what }) => what),
    ['CustomResourceDefinitions'],
  )
})

t.test('what is not about one object ends it', async (t) => {
  const gone = new ClusterApiError('Unavailable', 'connect ECONNREFUSED')
  await t.rejects(
    readSnapshot(new FixtureReader(fixture('kind'), (what) => (what === 'version' ? gone : undefined)), signal),
    gone,
  )
  const abort = new AbortController()
  const reason = new Error('enough')
  const refuse = (what: string): ClusterApiError | undefined => {
    if (what !== 'Nodes') return undefined
    abort.abort(reason)
    return gone
  }
  await t.rejects(readSnapshot(new FixtureReader(fixture('kind'), refuse), abort.signal), reason)
})
