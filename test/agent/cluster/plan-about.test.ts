import t from 'tap'
import { planAbout } from '../../../agent/cluster/plan-about.ts'
import type { ClusterProperty, Node } from '../../../model/objects.ts'
import { ownProperties } from '../../../model/services/cluster-properties.ts'
import { nodeObject } from '../../support/objects/node-objects.ts'

const OURS = { 'app.kubernetes.io/managed-by': 'sealane' }
const ID = 'cluster.clusterset.k8s.io'
const SET = 'clusterset.k8s.io'

function property(name: string, value: string, labels?: Record<string, string>): ClusterProperty {
  const metadata = labels === undefined ? { name } : { name, labels }
  return { apiVersion: 'about.k8s.io/v1beta1', kind: 'ClusterProperty', metadata, spec: { value } }
}

function show(properties: readonly ClusterProperty[]): string {
  const { apply, changed, problem } = planAbout({
    clusterId: 'tokyo',
    clusterset: 'default',
    properties,
    nodes: undefined,
  })
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
    planAbout({ clusterId: 'tokyo', clusterset: 'default', properties: [], nodes: undefined }).apply[0],
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

const REGION = 'region.sealane.io'
const ZONE = 'zone.sealane.io'

function node(name: string, region: string, zone: string): Node {
  const labels = { 'topology.kubernetes.io/region': region, 'topology.kubernetes.io/zone': zone }
  return nodeObject(name, { metadata: { labels } })
}

function fromNodes(name: string, value: string, now = value): ClusterProperty {
  const metadata = { name, labels: OURS, annotations: { 'sealane.io/from-nodes': value } }
  return { ...property(name, now), metadata }
}

t.test('region and zone follow the nodes, unless a user says something else', async (t) => {
  const [a, b] = [node('a', 'asia', 'asia-1'), node('b', 'asia', 'asia-2')]
  const rows: [
    name: string,
    nodes: Node[] | undefined,
    properties: ClusterProperty[],
    apply: string,
    remove: string,
  ][] = [
    ['nodes agree', [a], [], `${REGION}=asia ${ZONE}=asia-1`, ''],
    ['they agree on the region only', [a, b], [], `${REGION}=asia`, ''],
    [
      'a zone that is no longer true goes',
      [a, b],
      [fromNodes(ZONE, 'asia-1'), fromNodes(REGION, 'asia')],
      `${REGION}=asia`,
      ZONE,
    ],
    ['it follows them', [b], [fromNodes(ZONE, 'asia-1')], `${REGION}=asia ${ZONE}=asia-2`, ''],
    ["the user's own stays", [a], [property(ZONE, 'z')], `${REGION}=asia`, ''],
    ["the user's own stays without nodes", [], [property(ZONE, 'z')], '', ''],
    ['one that a user has edited stays', [a], [fromNodes(ZONE, 'asia-1', 'z')], `${REGION}=asia`, ''],
    ['until the nodes are read, nothing changes', undefined, [fromNodes(ZONE, 'asia-1')], '', ''],
    ['no nodes', [], [fromNodes(ZONE, 'asia-1'), fromNodes(REGION, 'asia')], `${REGION}=asia ${ZONE}=asia-1`, ''],
    [
      'a new node has no labels yet',
      [a, nodeObject('new')],
      [fromNodes(ZONE, 'asia-1'), fromNodes(REGION, 'asia')],
      `${REGION}=asia ${ZONE}=asia-1`,
      '',
    ],
    [
      'the labels of the new node differ in the zone',
      [a, b, nodeObject('new')],
      [fromNodes(ZONE, 'asia-1'), fromNodes(REGION, 'asia')],
      `${REGION}=asia`,
      ZONE,
    ],
    ['nothing new is stated while a node has no labels', [a, nodeObject('new')], [], '', ''],
    ["the user's own is not that of the nodes", [a, nodeObject('new')], [property(ZONE, 'asia-1')], '', ''],
  ]
  for (const [name, nodes, properties, apply, remove] of rows) {
    const about = [property(ID, 'tokyo'), property(SET, 'default')]
    const plan = planAbout({
      ...{ clusterId: 'tokyo', clusterset: 'default', nodes },
      properties: [...about, ...properties],
    })
    t.equal(plan.apply.map(({ metadata, spec }) => `${metadata.name}=${spec.value}`).join(' '), apply, name)
    t.equal(plan.remove.map(({ metadata }) => metadata.name).join(' '), remove, name)
    t.same(plan.changed, [], name)
  }
  const left = [fromNodes(REGION, 'asia'), fromNodes(ZONE, 'asia-1', 'z')]
  t.same(
    ownProperties(left).map(({ metadata }) => metadata.name),
    [REGION],
    'leaving takes what we read, and no edited one',
  )
})
