/**
 * The suite for every ClusterApi driver about conditions that one part sets on an object of another part, and about
 * reads past the cache.
 */
import type { Test } from 'tap'
import type { Condition, Gateway } from '../../model/objects.ts'
import { eventually } from '../support/eventually.ts'
import { gatewayObject } from '../support/objects/node-objects.ts'
import type { ClusterFactory } from './cluster-api.ts'

const gateway = (node: string, version = '1', ...conditions: Condition[]): Gateway =>
  gatewayObject(node, { version, conditions })

const deadline = (): AbortSignal => AbortSignal.timeout(5000)

export function conditionTests(t: Test, factory: ClusterFactory): void {
  t.test('setCondition sets one condition beside what another part says, which has the last word', async (t) => {
    const { api, other } = await factory(t)
    const found = (status: 'True' | 'False' | 'Unknown', type = 'Ready') =>
      ({ type, status, reason: 'Ready', message: '', lastTransitionTime: '2026-01-01T00:00:00Z' }) as const
    const reported = (version: string, ...conditions: Condition[]): Gateway => gateway('gw', version, ...conditions)
    const name = { kind: 'Gateway', name: 'gw' } as const
    await t.rejects(other.setCondition(name, found('Unknown')), {
      code: 'NotFound',
      message: 'Gateway gw does not exist',
    })
    await api.apply(gateway('gw'))
    await api.applyStatus(reported('1', found('True', 'Other'), found('True')))
    await other.cache('Gateway').whenSynced(deadline())
    await eventually(() => other.cache('Gateway').get('gw')?.status?.conditions?.length === 2)
    await other.setCondition(name, found('Unknown'))
    const states = (): string => {
      const { version, conditions } = api.cache('Gateway').get('gw')?.status ?? {}
      const texts = (conditions ?? []).map(({ type, status }) => `${type} ${status}`)
      return [`version ${version}`, ...texts.sort()].join(', ')
    }
    await eventually(() => states() === 'version 1, Other True, Ready Unknown').catch(() => undefined)
    t.equal(states(), 'version 1, Other True, Ready Unknown', 'nothing else changed')
    await api.applyStatus(reported('2', found('True', 'Other'), found('True')))
    await eventually(() => states() === 'version 2, Other True, Ready True').catch(() => undefined)
    t.equal(states(), 'version 2, Other True, Ready True', 'taken back')
    await other.setCondition(name, found('Unknown'))
    await eventually(() => states() === 'version 2, Other True, Ready Unknown').catch(() => undefined)
    t.equal(states(), 'version 2, Other True, Ready Unknown', 'and once more')
  })

  t.test('read gives what is stored now, and undefined for what is not there', async (t) => {
    const { api, other } = await factory(t)
    t.equal(await other.read('Gateway', 'gw'), undefined)
    await api.apply(gateway('gw'))
    await api.applyStatus(gateway('gw', '7'))
    t.match(await other.read('Gateway', 'gw'), { metadata: { name: 'gw' }, status: { version: '7' } })
    await api.applyStatus(gateway('gw', '8'))
    t.equal((await other.read('Gateway', 'gw'))?.status?.version, '8')
    await api.remove('Gateway', 'gw')
    t.equal(await other.read('Gateway', 'gw'), undefined)
    await t.rejects(other.read('Gateway', '../gw'), { code: 'Invalid' })
    await t.rejects(other.read('Gateway', 'gw', undefined, AbortSignal.abort(new Error('enough'))), {
      message: 'enough',
    })
    await other.close()
    await t.rejects(other.read('Gateway', 'gw'), { code: 'Unavailable' })
  })
}
