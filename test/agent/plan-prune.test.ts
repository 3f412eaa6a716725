import t from 'tap'
import { planPrune } from '../../agent/plan-prune.ts'
import type { Cluster, EndpointSlice } from '../../model/objects.ts'
import { OWN, PRESENT } from './import-fixtures.ts'

t.test('pruning', async (t) => {
  const labels = (source: string, manager = 'agent.sealane.io'): Record<string, string> => ({
    'multicluster.kubernetes.io/source-cluster': source,
    'endpointslice.kubernetes.io/managed-by': manager,
  })
  const slice = (name: string, of: Record<string, string>): EndpointSlice => ({
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    addressType: 'IPv4',
    metadata: { name, namespace: 'shop', labels: of },
  })
  const object = (id: string): Cluster => ({
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Cluster',
    metadata: { name: id },
    spec: { ...OWN, id },
  })
  const present = {
    serviceImports: [
      PRESENT,
      { ...PRESENT, metadata: { name: 'kept', namespace: 'shop' } },
      { ...PRESENT, metadata: { name: 'bare', namespace: 'shop' }, status: {} },
    ],
    slices: [
      slice('m', labels('milano')),
      slice('f', labels('flat')),
      slice('t', labels('tokyo')),
      slice('user', {}),
      slice('foreign', labels('milano', 'other')),
    ],
    clusters: [object('tokyo'), object('milano'), object('flat')],
    endpoints: [],
    own: 'tokyo',
    desired: new Map<string, unknown>([['Cluster/milano', 1]]),
    kept: new Map<string, unknown>([['ServiceImport/shop/kept', 1]]),
  }
  const rows: [certain: string[], want: string[]][] = [
    [[], []],
    [['milano'], ['m']],
    [
      ['milano', 'flat'],
      ['web', 'm', 'f', 'flat'],
    ],
    [
      ['milano', 'flat', 'tokyo'],
      ['web', 'bare', 'm', 'f', 't', 'flat'],
    ],
  ]
  for (const [certain, want] of rows) {
    t.same(
      planPrune({ ...present, certain: new Set(certain) }).map(({ metadata }) => metadata.name),
      want,
      certain.join(),
    )
  }
})
