/** The problems of a member are the same when its healthy services are left out. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { leaveOutHealthy } from '../../compose/problems/watch-problems.ts'
import { diagnoseMember } from '../../explain/diagnose-member.ts'
import type { EndpointSlice, Gateway, ServiceExport, ServiceImport } from '../../model/objects.ts'
import { NOW, SELF, copyOf, factSet, healthyObjects } from '../support/objects/member-facts.ts'

const OTHERS = ['paris', 'tokyo', 'oslo']

/** The condition that the agent writes on an export without one of its addresses. */
const INCOMPLETE = {
  type: 'sealane.io/Complete',
  status: 'True',
  reason: 'AddressOutsidePods',
  message: 'leaves out 192.0.2.9',
  lastTransitionTime: NOW,
}

const DOWN = { state: 'down', message: 'no answer' }

const damage = fc.record({
  services: fc.integer({ min: 0, max: 6 }),
  gateways: fc.integer({ min: 1, max: 3 }),
  /** Clusters whose links are down. */
  down: fc.subarray(OTHERS),
  silent: fc.subarray([0, 1, 2]),
  /** Slices, by their number modulo ten, without a ready endpoint. */
  unready: fc.subarray([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
  /** Slices, by their number modulo ten, that have no field for endpoints. */
  bare: fc.subarray([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
  /** For each export, the condition that shows a problem. */
  exports: fc.array(fc.constantFrom('', 'Valid', 'Ready', 'Conflict', 'sealane.io/Imported', 'sealane.io/Complete'), {
    maxLength: 6,
  }),
})

t.test('the same problems, with fewer objects', async (t) => {
  let found = 0
  let left = 0
  fc.assert(
    fc.property(damage, (init) => {
      const objects = copyOf(healthyObjects({ ...init, others: OTHERS, kubernetes: false }))
      const [gateways, slices, exports] = [objects.Gateway, objects.EndpointSlice, objects.ServiceExport] as [
        { status: { heartbeatTime: string; connections: { cluster: string; state: string; message: string }[] } }[],
        { endpoints?: { conditions: { ready: boolean } }[] }[],
        { status: { conditions: { type: string; status: string }[] } }[],
      ]
      for (const [i, { status }] of gateways.entries()) {
        if (init.silent.includes(i)) status.heartbeatTime = '2026-11-25T11:00:00Z'
        for (const link of status.connections) if (init.down.includes(link.cluster)) Object.assign(link, DOWN)
      }
      for (const [i, slice] of slices.entries()) {
        if (init.bare.includes(i % 10)) delete slice.endpoints
        if (!init.unready.includes(i % 10) || slice.endpoints === undefined) continue
        slice.endpoints = slice.endpoints.map((one) => ({ ...one, conditions: { ready: false } }))
      }
      for (const [i, { status }] of exports.entries()) {
        if (init.exports[i] === INCOMPLETE.type) status.conditions = [...status.conditions, { ...INCOMPLETE }]
        for (const one of status.conditions) {
          if (one.type === init.exports[i]) one.status = one.type === 'Conflict' ? 'True' : 'False'
        }
      }
      const all = {
        exports: exports as unknown as ServiceExport[],
        imports: objects.ServiceImport as ServiceImport[],
        slices: slices as unknown as EndpointSlice[],
      }
      const around = { self: SELF, gateways: gateways as unknown as Gateway[], nowMs: Date.parse(NOW) }
      const kept = leaveOutHealthy(all, around)
      const fewer = {
        ...objects,
        ServiceExport: [...kept.exports],
        ServiceImport: [...kept.imports],
        EndpointSlice: [...kept.slices],
      }
      const problems = diagnoseMember(factSet(objects)).problems
      assert.deepEqual(diagnoseMember(factSet(fewer)).problems, problems)
      found += problems.length
      left += all.slices.length - kept.slices.length
    }),
    { numRuns: 200 },
  )
  t.ok(found > 100 && left > 100, `${found} problems, ${left} slices left out`)
})

t.test('nothing is left of many services that are well, and all of those that are not', async (t) => {
  const objects = healthyObjects({ services: 100, others: OTHERS })
  const all = {
    exports: objects.ServiceExport as ServiceExport[],
    imports: objects.ServiceImport as ServiceImport[],
    slices: objects.EndpointSlice as EndpointSlice[],
  }
  const gateways = objects.Gateway as Gateway[]
  const nowMs = Date.parse(NOW)
  t.same(leaveOutHealthy(all, { self: SELF, gateways, nowMs }), { exports: [], imports: [], slices: [] })
  const none = leaveOutHealthy(all, { self: undefined, gateways: [], nowMs })
  t.equal(none.imports.length, 100)
  t.equal(none.slices.length, 400)
  t.equal(none.exports.length, 0)
})
