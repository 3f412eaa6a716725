import t from 'tap'
import { ownProperties, planAbout } from '../../../agent/cluster/plan-about.ts'
import type { ClusterProperty } from '../../../model/objects.ts'

const OURS = { 'app.kubernetes.io/managed-by': 'sealane' }
const ID = 'cluster.clusterset.k8s.io'
const SET = 'clusterset.k8s.io'

function property(name: string, value: string, labels?: Record<string, string>): ClusterProperty {
  const metadata = labels === undefined ? { name } : { name, labels }
  return { apiVersion: 'about.k8s.io/v1beta1', kind: 'ClusterProperty', metadata, spec: { value } }
}

function show(properties: readonly ClusterProperty[]): string {
  const { apply, changed, problem } = planAbout({ clusterId: 'tokyo', clusterset: 'default', properties })
  const applied = apply.map(({ metadata, spec }) => `${metadata.name}=${spec.value}`).join(' ')
  const reported = changed.map(({ name, found }) => `${name} was ${found}`).join(', ')
  return [applied, reported, problem?.text ?? ''].filter((text) => text !== '').join('; ')
}

t.test('what is written, put back and refused', async (t) => {
  const rows: [name: string, properties: ClusterProperty[], want: string][] = [
    ['neither', [], `${ID}=tokyo ${SET}=default`],
    ['both by others', [property(ID, 'tokyo'), property(SET, 'default')], ''],
    ['our own stays as it is to be', [property(ID, 'tokyo'), property(SET, 'default', OURS)], `${SET}=default`],
    ['the cluster had its id before', [property(ID, 'tokyo')], `${SET}=default`],
    ['others are none of ours', [property('fingerprint.example.org', 'x')], `${ID}=tokyo ${SET}=default`],
    [
      'our id was edited',
      [property(ID, 'x', OURS), property(SET, 'default', OURS)],
      `${ID}=tokyo ${SET}=default; ${ID} was x`,
    ],
    ['our clusterset was edited', [property(ID, 'tokyo'), property(SET, 'x', OURS)], `${SET}=default; ${SET} was x`],
    [
      'the cluster has another id: it is not claimed for the clusterset',
      [property(ID, 'kyoto')],
      `ClusterProperty ${ID} is "kyoto", but this cluster has joined as "tokyo": set the property to tokyo, delete it, or run "sealane leave" and join under the id that it names`,
    ],
    [
      'the cluster belongs to another clusterset',
      [property(SET, 'other')],
      `ClusterProperty ${SET} is "other", but this cluster has joined clusterset "default": leave the other clusterset (with the product that wrote the property), or delete the property if no product uses it`,
    ],
  ]
  for (const [name, properties, want] of rows) t.equal(show(properties), want, name)
  t.strictSame(
    planAbout({ clusterId: 'tokyo', clusterset: 'default', properties: [] }).apply[0],
    property(ID, 'tokyo', OURS),
  )
  t.same(
    ownProperties([property(ID, 'tokyo'), property(SET, 'default', OURS), property('x', 'y', OURS)]).map(
      ({ metadata }) => metadata.name,
    ),
    [SET],
    'leaving takes what we wrote',
  )
})
