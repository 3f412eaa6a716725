/**
 * Many exports at once: the agent evaluates each one when it writes its status, and an export whose status cannot be
 * written does not delay the others.
 */
import t from 'tap'
import { ExportConditions } from '../../../agent/publish/export-conditions.ts'
import { agentMetrics } from '../../../agent/loop/metrics.ts'
import { MirrorWriter } from '../../../agent/loop/mirror-writer.ts'
import { planConditions } from '../../../agent/publish/plan-conditions.ts'
import { type PlannedExport, planExports } from '../../../agent/export/plan-exports.ts'
import { SharedFindings } from '../../../agent/loop/shared-findings.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { CONDITION_COMPLETE, setCondition } from '../../../model/conditions.ts'
import { parsePrefix } from '../../../model/values/ip.ts'
import type { Condition, KubeObject } from '../../../model/objects.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { namespaceObject } from '../../support/objects/service-objects.ts'
import { ALLOWS_ALL, service, serviceExport } from '../site.ts'
import type { ReasonCode } from '../../../model/reasons/reasons.ts'

const COUNT = 200

/** An API that counts status writes before it makes them. */
class CountingCluster extends MemoryApi {
  statuses = 0
  /** The name of an object whose status write fails. */
  stubborn = ''

  override applyStatus(object: KubeObject): Promise<void> {
    this.statuses += 1
    if (object.metadata.name === this.stubborn) return Promise.reject(new ClusterApiError('Unavailable', 'not now'))
    return super.applyStatus(object)
  }
}

async function manyExports() {
  const api = new CountingCluster()
  api.put(namespaceObject('shop'))
  for (let i = 0; i < COUNT; i++) {
    api.put(service('shop', `web-${i}`))
    api.put(serviceExport('shop', `web-${i}`))
  }
  const signal = AbortSignal.timeout(10_000)
  await api.cache('ServiceExport').whenSynced(signal)
  await api.cache('Service').whenSynced(signal)
  const clock = new SystemClock()
  const metrics = agentMetrics(createMetrics('agent'))
  const writer = new MirrorWriter({ api, clock, logger: new CapturingLogger(), metrics })
  // The broker confirms all records while the agent writes the first statuses.
  const publisher = {
    answered: true,
    setFacts: () => undefined,
    setStatus: () => undefined,
    setDesired: () => undefined,
    state: () => ({ t: api.statuses === 0 ? ('pending' as const) : ('stored' as const) }),
    onChange: () => () => undefined,
  }
  const deps = { api, publisher, writer, findings: new SharedFindings(), clock, metrics }
  const plan = planExports({
    cluster: 'milano',
    podPrefixes: [parsePrefix('10.42.0.0/16')],
    access: ALLOWS_ALL,
    exports: api.cache('ServiceExport').list(),
    services: api.cache('Service').list(),
    slices: [],
    endpoints: [],
  })
  const exported = (): number =>
    api
      .cache('ServiceExport')
      .list()
      .filter(({ status }) => status?.conditions?.some(({ reason }) => reason === 'Exported')).length
  return { api, conditions: new ExportConditions(deps), plan, exported, signal }
}

t.test('what is confirmed meanwhile is told once', async (t) => {
  const { api, conditions, plan, exported, signal } = await manyExports()
  await conditions.report(plan, plan.exports.keys(), signal)
  t.equal(api.statuses, COUNT)
  t.ok(exported() >= COUNT / 2, `${exported()} are told as exported at once`)
  await conditions.report(plan, plan.exports.keys(), signal)
  t.equal(exported(), COUNT, 'the next round tells the rest')
  t.ok(api.statuses < 1.5 * COUNT, `${api.statuses} writes`)
})

t.test('one that cannot be written is told of last', async (t) => {
  const { api, conditions, plan, signal } = await manyExports()
  api.stubborn = [...plan.exports.keys()][0]?.split('/')[1] ?? ''
  await t.rejects(conditions.report(plan, plan.exports.keys(), signal), /not now/)
  t.equal(api.statuses, COUNT, 'all others have been written')
})

t.test('what is left out of an export has a condition of its own', async (t) => {
  const said = (notes: PlannedExport['notes'], before: readonly Condition[] = []): unknown => {
    const object = { ...serviceExport('default', 'web'), status: { conditions: before } }
    const valid = { type: 'Valid', status: 'True', reason: 'Valid', message: '' } as const
    const records = { records: [], exported: undefined, offered: undefined, recordKeys: ['ServiceExport/default/web'] }
    const stored = { answered: true, state: () => ({ t: 'stored' }) as const }
    const found = planConditions({ object, valid, notes, ...records }, stored)
    t.match(found.find(({ type }) => type === 'Ready')?.status, 'True')
    const one = found.find(({ type }) => type === CONDITION_COMPLETE)
    return one === undefined ? undefined : `${one.status} ${one.reason}: ${one.message}`
  }
  const outside = { message: 'endpoint 10.9.0.1 is left out', reason: 'AddressOutsidePods' } as const
  const tooLong = { message: 'hostname "x" is left out', reason: 'HostnameTooLong' } as const
  t.equal(said([]), undefined)
  t.equal(said([{ message: 'a zone is left out' }]), undefined, 'it has no name')
  t.equal(said([outside]), 'False AddressOutsidePods: endpoint 10.9.0.1 is left out')
  t.equal(
    said([tooLong, { message: 'a zone' }, outside, outside]),
    'False HostnameTooLong,AddressOutsidePods: hostname "x" is left out; endpoint 10.9.0.1 is left out; ' +
      'endpoint 10.9.0.1 is left out',
  )
  const [was] = setCondition(
    [],
    { type: CONDITION_COMPLETE, status: 'False', reason: 'AddressOutsidePods', message: '' },
    0,
  )
  t.equal(said([], was === undefined ? [] : [was]), 'True Exported: ', 'it is whole again')
})

t.test('a namespace that the broker does not allow has a reason of its own', async (t) => {
  const object = serviceExport('default', 'web')
  const valid = { type: 'Valid', status: 'True', reason: 'Valid', message: '' } as const
  const planned = {
    object,
    valid,
    records: [],
    exported: undefined,
    offered: undefined,
    recordKeys: ['ServiceExport/default/web'],
    notes: [],
  }
  const ready = (field: string, reason: ReasonCode): string => {
    const refused = { t: 'refused' as const, field, reason, message: 'no' }
    const found = planConditions(planned, { answered: true, state: () => refused })
    const one = found.find(({ type }) => type === 'Ready')
    return `${one?.status} ${one?.reason}: ${one?.message}`
  }
  t.equal(
    ready('namespace', 'NamespaceNotAllowed'),
    'False NamespaceNotAllowed: the broker refuses ServiceExport/default/web: namespace: no (NamespaceNotAllowed)',
  )
  t.equal(
    ready('ports', 'InvalidValue'),
    'False Failed: the broker refuses ServiceExport/default/web: ports: no (InvalidValue)',
  )
})
