/** Who may call, addresses instead of names, headless pods, and several ways at once. */
import t from 'tap'
import type { PathObjects } from '../../../explain/path/member-view.ts'
import type { AccessPolicy, ClusterAccessPolicy } from '../../../model/objects.ts'
import { SELF } from '../../support/objects/member-facts.ts'
import { DOWN, changeLinks } from '../broken-member.ts'
import { type At, type TwoInit, endOf, explained, importedSlice, pathObjects } from './two-members.ts'

function policy(from: AccessPolicy['spec']['from']): AccessPolicy {
  const metadata = { name: 'few', namespace: 'shop' }
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'AccessPolicy', metadata, spec: { from } }
}

function egress(...namespaces: string[]): ClusterAccessPolicy {
  const spec = { default: 'allow', egress: [{ namespaces }] } as const
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'ClusterAccessPolicy', metadata: { name: 'default' }, spec }
}

const here = (change: PathObjects): PathObjects => ({ ...pathObjects(SELF), ...change })
const offered = (names: readonly string[], selectors: readonly object[] = []): PathObjects =>
  here({ EndpointSlice: [importedSlice({ 'sealane.io/callers': JSON.stringify({ names, selectors }) })] })

/** What milano has while the topology does not link it with paris: nothing of it, which is no fault. */
function apart(at: At): void {
  const clusters = at('Cluster')
  clusters.splice(0, clusters.length, ...clusters.filter(({ metadata }) => metadata.name === SELF))
  for (const { metadata } of clusters)
    Object.assign(metadata, { annotations: { 'sealane.io/known-members': `${SELF},paris:NotLinkedByTopology` } })
  at('ServiceImport').splice(0)
  at('EndpointSlice').splice(0)
  for (const { status } of at('Gateway')) status.connections = []
}

const ROWS: Readonly<Record<string, readonly [TwoInit, end: string]>> = {
  'egress names other namespaces': [
    { objects: here({ ClusterAccessPolicy: [egress('bank')] }) },
    'access access-egress',
  ],
  'egress names its namespace': [{ objects: here({ ClusterAccessPolicy: [egress('shop')] }) }, 'REACHABLE'],
  'egress, and the caller is a node': [
    { from: 'w0', objects: here({ ClusterAccessPolicy: [egress('shop')] }) },
    'access access-egress',
  ],
  'egress, and the namespace of an address is not known': [
    { from: '10.42.2.9', objects: here({ ClusterAccessPolicy: [egress('shop')] }) },
    'UNDETERMINED',
  ],
  'offered to another namespace': [{ objects: offered(['bank']) }, 'access access-namespace'],
  'offered by labels that are not known': [
    { objects: { ...offered([], [{ matchLabels: { team: 'a' } }]), Namespace: undefined } as never },
    'UNDETERMINED',
  ],
  'the exporter has closed it since': [
    { farObjects: pathObjects('paris', [policy([{ clusters: ['tokyo'] }])]) },
    'access CallsNotAllowed',
  ],
  'the exporter lets in another namespace': [
    { farObjects: pathObjects('paris', [policy([{ clusters: [SELF], namespaces: ['bank'] }])]) },
    'access access-not-offered',
  ],
  'the pod of an exported service by its address': [{ to: '244.2.2.5:5433' }, 'REACHABLE'],
  'a port that no exported service has': [{ to: '244.2.2.5:22' }, 'access access-not-exported'],
  'any pod of a cluster that exposes all': [
    { to: '244.2.2.9:22', there: (at) => void (at('Membership')[0]!.spec['exposure'] = 'pods') },
    'REACHABLE',
  ],
  'the topology does not link the two': [{ here: apart }, 'name NotLinkedByTopology'],
  'a clusterset IP instead of the name': [{ to: '245.0.0.9:5432' }, 'REACHABLE'],
  'facts of a bundle, which have no addresses and no policies': [{ objects: {} }, 'UNDETERMINED'],
}

for (const [name, [init, end]] of Object.entries(ROWS)) {
  t.test(name, async (t) => {
    const found = explained(init)
    t.equal(endOf(found), end, found.message)
  })
}

t.test('an address of a cluster with which the topology does not link', async (t) => {
  t.throws(
    () => explained({ here: apart, to: '10.99.0.1:80' }),
    /no member that this cluster links with has this address/,
  )
})

t.test('one of two exporters is cut off: no share goes there, and the call arrives', async (t) => {
  const toTokyo = { ...importedSlice(), metadata: { ...importedSlice().metadata, name: 'db-tokyo' } }
  toTokyo.metadata.labels = { ...toTokyo.metadata.labels, 'multicluster.kubernetes.io/source-cluster': 'tokyo' }
  const both: TwoInit = {
    objects: here({ EndpointSlice: [importedSlice(), toTokyo] }),
    here: (at) => {
      at('ServiceImport')[0]!.status['clusters'] = ['paris', 'tokyo'].map((cluster) => ({ cluster })) as never
      at('Cluster').push({
        ...at('Cluster')[1]!,
        metadata: { name: 'tokyo' },
        spec: { ...at('Cluster')[1]!.spec, id: 'tokyo', globalCIDRs: ['244.3.0.0/16'] },
      })
      changeLinks(at, ({ cluster }) => cluster === 'tokyo', DOWN)
    },
  }
  const found = explained(both)
  t.equal(endOf(found), 'REACHABLE', found.message)
  t.same(
    found.ways.map(({ cluster, share }) => [cluster, share]),
    [['paris', 10_000]],
  )
  t.match(found.steps.find(({ station }) => station === 'shares')?.notes.join('\n'), /tokyo 0 %: ClusterNotReached/)
})

t.test('the topology lets the two link through hubs alone', async (t) => {
  const through =
    (change: Parameters<typeof changeLinks>[2]) =>
    (at: At): void => {
      for (const { metadata } of at('Endpoint').filter(({ spec }) => spec['cluster'] === 'paris'))
        Object.assign(metadata, { annotations: { 'sealane.io/via': 'oslo,riga' } })
      changeLinks(at, ({ cluster }) => cluster === 'paris', change)
    }
  const linkTexts = (change: Parameters<typeof changeLinks>[2]): string =>
    explained({ here: through(change) })
      .steps.filter(({ station }) => station === 'link')
      .flatMap(({ message, notes }) => [message, ...notes])
      .join()
  t.match(linkTexts({ usingRelay: 'riga' }), /relayed by riga, by the topology/)
  t.match(linkTexts({ asleep: true }), /asleep: the next packet wakes it/)
  t.match(linkTexts(DOWN), /by the topology only relays of oslo, riga may carry the links/)
})
