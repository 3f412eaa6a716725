/** A record that is not offered to this cluster is not imported, whatever the broker sends. */
import t from 'tap'
import { recordProblem } from '../../../agent/import/check-record.ts'
import { newImportMemory, planImports } from '../../../agent/import/plan-imports.ts'
import type { ClusterId } from '../../../model/ids.ts'
import type { ClusterSpec } from '../../../model/objects.ts'
import type { ServiceExportBody } from '../../../model/records.ts'
import { INIT, IP, MILANO, OWN, exported, record, sliceOf, world } from '../import-fixtures.ts'

const to = (...ids: string[]) => ids as ClusterId[]

t.test('an export and a slice are used by those whom they name', (t) => {
  for (const [record, own, expected] of [
    [exported('milano'), 'tokyo', undefined],
    [exported('milano', { offeredTo: [{ clusters: to('tokyo') }] }), 'tokyo', undefined],
    [exported('milano', { offeredTo: [{ clusters: to('paris') }] }), 'tokyo', 'NotOffered'],
    [exported('milano', { offeredTo: [] }), 'tokyo', 'NotOffered'],
    [exported('milano', { offeredTo: [] }), 'milano', undefined],
    [exported('milano', { offeredTo: [] }), undefined, undefined],
    [sliceOf('milano', '10.42.0.5', { offeredTo: to('paris', 'tokyo') }), 'tokyo', undefined],
    [sliceOf('milano', '10.42.0.5', { offeredTo: to('paris') }), 'tokyo', 'NotOffered'],
    [sliceOf('milano', '10.42.0.5', { offeredTo: [] }), 'milano', undefined],
    [exported('milano', { offeredTo: [{ clusters: to('a b') }] }), 'tokyo', 'InvalidValue'],
  ] as const)
    t.equal(recordProblem(record, {}, undefined, own)?.reason, expected)
  t.end()
})

t.test('namespaces that may call are written on the slices of their cluster', (t) => {
  const memory = newImportMemory({ ...INIT, cluster: 'tokyo' })
  const justFor = (...names: string[]) => [{ clusters: to('tokyo'), namespaces: { names, selectors: [] } }]
  const callers = (...offeredTo: NonNullable<ServiceExportBody['offeredTo']>[]): unknown[] => {
    const records = [exported('milano', { offeredTo: offeredTo[0] ?? [] }), sliceOf('milano', '10.42.0.5')]
    const mine = [exported('tokyo', { offeredTo: justFor('shop') }), sliceOf('tokyo', '10.42.0.6')]
    const { objects } = planImports(world([MILANO, IP, ...records, ...mine]), memory)
    return [...objects.values()].flatMap(({ kind, metadata }) =>
      kind === 'EndpointSlice' ? [metadata.annotations?.['sealane.io/callers']] : [],
    )
  }
  t.same(callers([{ clusters: to('tokyo') }]), [undefined, undefined])
  t.same(callers(justFor('shop', 'bank')), ['{"names":["bank","shop"],"selectors":[]}', undefined])
  t.same(callers(justFor('shop')), ['{"names":["shop"],"selectors":[]}', undefined], 'and change with the offer')
  t.same(callers([...justFor('shop'), { clusters: to('oslo') }]), ['{"names":["shop"],"selectors":[]}', undefined])
  t.same(callers([...justFor('shop'), { clusters: to('tokyo', 'oslo') }]), [undefined, undefined], 'and all others')
  t.end()
})

t.test('slices say whether their exporter lets open connections outlast its offer', (t) => {
  const memory = newImportMemory({ ...INIT, cluster: 'tokyo' })
  const offeredTo = [{ clusters: to('tokyo'), namespaces: { names: ['shop'], selectors: [] } }]
  const callers = (change: Partial<ServiceExportBody>): unknown => {
    const services = [exported('milano', { offeredTo, ...change }), sliceOf('milano', '10.42.0.5')]
    const { objects } = planImports(world([MILANO, IP, ...services]), memory)
    const [slice] = [...objects.values()].filter(({ kind }) => kind === 'EndpointSlice')
    return slice?.metadata.annotations?.['sealane.io/callers']
  }
  const ends = '{"names":["shop"],"selectors":[]}'
  t.equal(callers({}), ends)
  t.equal(callers({ keepsOpen: true }), '{"names":["shop"],"selectors":[],"keepsOpen":true}')
  t.equal(callers({ keepsOpen: false }), ends, 'and no longer')
  t.end()
})

t.test('and whether a withdrawal drops them, whoever may call', (t) => {
  const memory = newImportMemory({ ...INIT, cluster: 'tokyo' })
  const marks = (change: Partial<ServiceExportBody>): unknown[] => {
    const { objects } = planImports(
      world([MILANO, IP, exported('milano', change), sliceOf('milano', '10.42.0.5')]),
      memory,
    )
    return [...objects.values()].flatMap(({ kind, metadata }) =>
      kind === 'EndpointSlice' ? [metadata.annotations?.['sealane.io/ends-open']] : [],
    )
  }
  t.strictSame(marks({}), [undefined])
  t.strictSame(marks({ endsOpen: true }), ['true'])
  t.strictSame(marks({ endsOpen: false }), [undefined], 'and no longer')
  t.strictSame(marks({ keepsOpen: true }), [undefined])
  t.end()
})

function drainMarks(annotations: Readonly<Record<string, string>> | undefined): string | undefined {
  const now = annotations?.['sealane.io/drained-now']
  const drained = annotations?.['sealane.io/drained']
  return now === undefined ? drained : `${drained}, now ${now}`
}

t.test(
  'the slices of a cluster that is drained now say so: a CRD of an earlier release drops it from the Cluster',
  (t) => {
    const memory = newImportMemory({ ...INIT, cluster: 'tokyo' })
    const marks = (milano: Partial<ClusterSpec>, tokyo: Partial<ClusterSpec> = {}): unknown[] => {
      const members = [MILANO, record('tokyo', 'tokyo', { kind: 'Cluster', spec: OWN })].map((one, i) => {
        const change = i === 0 ? milano : tokyo
        return one.body.kind === 'Cluster'
          ? { ...one, body: { ...one.body, spec: { ...one.body.spec, ...change } } }
          : one
      })
      const services = ['milano', 'tokyo'].flatMap((id) => [exported(id), sliceOf(id, '10.42.0.5')])
      const { objects } = planImports(world([...members, IP, ...services]), memory)
      return [...objects.values()].flatMap(({ kind, metadata }) =>
        kind === 'EndpointSlice' ? [drainMarks(metadata.annotations)] : [],
      )
    }
    const now = { drained: true, drainedNow: true }
    t.same(marks({}), [undefined, undefined])
    t.same(marks({ drained: true }), [undefined, undefined])
    t.same(marks(now), ['undefined, now true', undefined])
    t.same(marks({}, now), [undefined, 'undefined, now true'], 'this cluster')
    t.same(marks({ drainedNow: true }), [undefined, undefined], 'and no longer')
    t.end()
  },
)

t.test('what its exporter drains is marked on the slices of its cluster, those of this cluster too', (t) => {
  const memory = newImportMemory({ ...INIT, cluster: 'tokyo' })
  type Drain = boolean | undefined | 'now'
  const marks = (milano: Drain, tokyo: Drain): unknown[] => {
    const export_ = (id: string, drain: Drain) =>
      exported(
        id,
        drain === undefined ? {} : drain === 'now' ? { drained: true, drainedNow: true } : { drained: drain },
      )
    const records = [export_('milano', milano), sliceOf('milano', '10.42.0.5')]
    const mine = [export_('tokyo', tokyo), sliceOf('tokyo', '10.42.0.6')]
    const { objects } = planImports(world([MILANO, IP, ...records, ...mine]), memory)
    return [...objects.values()].flatMap(({ kind, metadata }) =>
      kind === 'EndpointSlice' ? [drainMarks(metadata.annotations)] : [],
    )
  }
  t.same(marks(undefined, undefined), [undefined, undefined])
  t.same(marks(true, undefined), ['true', undefined])
  t.same(marks(false, true), [undefined, 'true'])
  t.same(marks('now', true), ['true, now true', 'true'], 'readers of earlier releases find what they know')
  t.same(marks(true, 'now'), ['true', 'true, now true'])
  t.same(marks(undefined, undefined), [undefined, undefined], 'and no longer')
  t.end()
})
