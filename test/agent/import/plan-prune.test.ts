import t from 'tap'
import { type PruneWorld, planPrune } from '../../../agent/import/plan-imports.ts'
import type { Cluster, EndpointSlice, ServiceImport } from '../../../model/objects.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'
import { sliceObject } from '../../support/objects/service-objects.ts'
import { OWN, PRESENT } from '../import-fixtures.ts'

t.test('pruning', async (t) => {
  const labels = (source: string, manager = 'agent.sealane.io'): Record<string, string> => ({
    'multicluster.kubernetes.io/source-cluster': source,
    'endpointslice.kubernetes.io/managed-by': manager,
  })
  const slice = (name: string, of: Record<string, string>): EndpointSlice => sliceObject({ name, labels: of })
  const imported = (name: string): ServiceImport => ({ ...PRESENT, metadata: { ...PRESENT.metadata, name } })
  const object = (id: string): Cluster => clusterObject({ ...OWN, id })
  const present = {
    serviceImports: [
      PRESENT,
      imported('kept'),
      { ...imported('bare'), status: {} },
      { ...PRESENT, metadata: { name: 'of another product', namespace: 'shop' } },
    ],
    slices: [
      slice('m', labels('milano')),
      slice('f', labels('flat')),
      slice('t', labels('tokyo')),
      slice('user', {}),
      slice('derived', {
        ...labels('milano'),
        ...{ 'sealane.io/derived': 'true', 'app.kubernetes.io/managed-by': 'sealane' },
      }),
      slice('foreign', labels('milano', 'other')),
    ],
    clusters: [object('tokyo'), object('milano'), object('flat')],
    endpoints: [],
    own: 'tokyo',
    holds: () => true,
    expired: new Set<string>(),
    harmful: new Set<string>(),
    namespaces: new Set(['shop']),
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
  const names = (change: Partial<PruneWorld>): string[] =>
    planPrune({ ...present, certain: new Set(), ...change }).map(({ metadata }) => metadata.name)
  const all = new Set(['milano', 'flat', 'tokyo'])
  t.same(names({ certain: all, holds: () => false }), ['flat'], 'where records are still to come, none is missing')
  t.same(names({ harmful: new Set(['flat']) }), ['flat'], 'what stands in the way goes, whoever is heard or not')
  t.same(names({ expired: new Set(['milano']) }), ['m'], 'of a dead cluster only the slices go')
  t.same(
    names({ namespaces: new Set() }),
    ['web', 'kept', 'bare', 'm', 'f', 't'],
    'a namespace that is no more takes everything along, whoever is heard or not',
  )
})
