import fc from 'fast-check'
import t from 'tap'
import { changeServices } from '../../../agent/import/clusterset-records.ts'
import { type ImportPlan, newImportMemory, planImports, replanServices } from '../../../agent/import/plan-imports.ts'
import type { ServiceImport } from '../../../model/objects.ts'
import { type StoredRecord, recordKeyText } from '../../../model/records.ts'
import type { ReplicaChange } from '../../../protocol/replica/record-replica.ts'
import { FLAT, INIT, IP, MILANO, exported, plan, sliceOf, world } from '../import-fixtures.ts'

t.test('properties', async (t) => {
  const arbPorts = fc.uniqueArray(
    fc.record({
      name: fc.constantFrom('a', 'b', ''),
      protocol: fc.constant('TCP' as const),
      port: fc.integer({ min: 1, max: 3 }),
    }),
    { maxLength: 3, selector: (p) => p.port },
  )
  const arbRecord: fc.Arbitrary<StoredRecord> = fc.oneof(
    fc
      .tuple(
        fc.constantFrom('milano', 'flat', 'tokyo'),
        arbPorts,
        fc.integer({ min: 0, max: 2 }),
        fc.constantFrom('ClusterSetIP' as const, 'Headless' as const),
      )
      .map(([from, ports, at, type]) => exported(from, { ports, type }, at)),
    fc
      .tuple(fc.constantFrom('milano', 'flat', 'tokyo'), fc.ipV4(), fc.constantFrom('10.42.0.5', '10.99.0.5'))
      .map(([from, a, b]) => sliceOf(from, `${a} ${b}`, { ports: [{ name: 'a', port: 8080 }, { port: 8081 }] })),
    fc.constantFrom(MILANO, FLAT, IP),
  )
  const arbRecords = fc.uniqueArray(arbRecord, { selector: ({ key }) => JSON.stringify(key), maxLength: 10 })
  const flat = (found: ImportPlan): string => JSON.stringify([[...found.objects], [...found.dropped]])
  fc.assert(
    fc.property(
      arbRecords.chain((list) => fc.tuple(fc.constant(list), fc.shuffledSubarray(list, { minLength: list.length }))),
      ([one, other]) => flat(plan(one)) === flat(plan(other)),
    ),
    { numRuns: 300 },
  )
  t.pass('the order of records does not matter')
  const memory = newImportMemory(INIT)
  fc.assert(
    fc.property(arbRecords, (list) => {
      const first = planImports(world(list), memory)
      const second = planImports(world(list), memory)
      if (flat(first) !== flat(plan(list))) return false
      return [...first.objects].every(([key, object]) => second.objects.get(key) === object)
    }),
    { numRuns: 300 },
  )
  t.pass('the memory changes nothing but identity')
  fc.assert(
    fc.property(arbRecords, (list) => {
      const { objects } = plan(list)
      for (const object of objects.values()) {
        if (object.kind !== 'EndpointSlice') continue
        const service = objects.get('ServiceImport/shop/web') as ServiceImport
        const names = service.spec.ports.map((port) => port.name ?? '')
        if (!(object.ports ?? []).every((port) => names.includes(port.name ?? ''))) return false
        const source = object.metadata.labels?.['multicluster.kubernetes.io/source-cluster']
        const inside = { milano: /^244\.1\./, flat: /^10\.99\./, tokyo: /./ }[source ?? '']
        if (!(object.endpoints ?? []).every(({ addresses }) => addresses.every((text) => inside?.test(text))))
          return false
      }
      return true
    }),
    { numRuns: 300 },
  )
  t.pass('slices carry only ports of the service, and only addresses of their cluster')

  const byKey = (list: readonly StoredRecord[]): Map<string, StoredRecord> =>
    new Map([...list, MILANO, FLAT].map((one) => [recordKeyText(one.key), one]))
  const show = (found: ImportPlan): string =>
    JSON.stringify([
      [...found.objects].sort(([a], [b]) => (a < b ? -1 : 1)),
      [...found.ownFindings],
      found.dropped.length,
    ])
  let partial = 0
  fc.assert(
    fc.property(fc.array(arbRecords, { minLength: 2, maxLength: 6 }), (states) => {
      const memory = newImportMemory(INIT)
      let before = byKey(states[0] ?? [])
      let current = planImports(world([...before.values()]), memory)
      for (const state of states.slice(1)) {
        const now = byKey(state)
        const changes: ReplicaChange[] = [...now].flatMap(([key, record]) =>
          before.get(key) === record ? [] : [{ t: 'put', record, previous: before.get(key) }],
        )
        for (const [key, record] of before) if (!now.has(key)) changes.push({ t: 'removed', record })
        const changed = changeServices(current.basis.view, changes, memory.validate)
        const [last, asItWas] = [current, show(current)]
        const next = world([...now.values()])
        if (changed !== undefined) partial += 1
        current = changed === undefined ? planImports(next, memory) : replanServices(next, memory, current, changed)
        if (show(last) !== asItWas) return false
        if (show(current) !== show(plan([...now.values()]))) return false
        before = now
      }
      return true
    }),
    { numRuns: 500 },
  )
  t.ok(partial > 50, `planning what has changed gives what planning everything gives (${partial} times)`)
})
