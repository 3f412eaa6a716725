import t, { type Test } from 'tap'
import { MembershipChangedError } from '../../agent/main.ts'
import type { ClusterProperty } from '../../model/objects.ts'
import { nodeObject } from '../support/objects/node-objects.ts'
import { Site, service, slice } from './site.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { until, untilReported } from './until.ts'

const ID = 'cluster.clusterset.k8s.io'

function property(name: string, value: string): ClusterProperty {
  return { apiVersion: 'about.k8s.io/v1beta1', kind: 'ClusterProperty', metadata: { name }, spec: { value } }
}

async function tokyo(t: Test): Promise<Site> {
  const site = new Site(new FakeClusterset(), { id: 'tokyo', podCIDR: '10.42.0.0/16' })
  await site.join()
  site.api.put(service('shop', 'web'))
  site.api.put(slice('shop', 'web', '10.42.0.5'))
  site.export('shop', 'web')
  t.teardown(() => site.stop())
  return site
}

const values = (site: Site) => (): string[] =>
  site.api
    .cache('ClusterProperty')
    .list()
    .map(({ metadata, spec }) => `${metadata.name}=${spec.value}`)
const BOTH = [`${ID}=tokyo`, 'clusterset.k8s.io=test']

t.test('the properties stand as long as the membership', async (t) => {
  const site = await tokyo(t)
  site.start()
  await until(t, values(site), BOTH, 'written')
  const ours = site.api.get('ClusterProperty', ID)
  await site.api.apply({ ...ours!, spec: { value: 'kyoto' } })
  await until(t, values(site), BOTH, 'an edited one is put back')
  t.match(
    site.api.events.filter(({ regarding }) => regarding.kind === 'ClusterProperty').map(({ note }) => note),
    [
      `${ID} was changed to "kyoto", but this cluster is a member as "tokyo"; the agent restored tokyo. To join under another id, run "sealane leave" first`,
    ],
  )
  t.match(site.logger.lines.filter(({ level }) => level === 'error').length, 1, 'not silently')
  await site.api.remove('ClusterProperty', 'clusterset.k8s.io')
  await until(t, values(site), BOTH, 'a removed one comes back')
  await site.setPhase('leaving')
  await site.ended()
  t.same(values(site)(), [], 'gone with the membership')
})

t.test('a cluster that already has another id is not claimed, and the way out works', async (t) => {
  const site = await tokyo(t)
  site.api.put(property(ID, 'kyoto'))
  site.start()
  const want =
    `agent: ClusterProperty ${ID} is "kyoto", but this cluster has joined as "tokyo": ` +
    'set the property to tokyo, delete it, or run "sealane leave" and join under the id that it names'
  await until(t, () => site.status.notReady(), [want], 'says what to do')
  t.same(site.show(), [], 'nothing is imported')
  t.equal(site.conditions('shop', 'web'), '', 'nothing is exported')
  t.same(values(site)(), [`${ID}=kyoto`], 'no membership is claimed')
  await untilReported(t, site, [`ClusterProperty ${ID} Warning Refused`])
  site.api.drop('ClusterProperty', ID)
  await until(t, () => site.show().length, 1, 'goes on by itself')
  t.same(values(site)(), BOTH)
  t.same(site.status.notReady(), [])
  site.api.put(property(ID, 'kyoto'))
  await until(t, () => site.status.notReady(), [want], 'later it is an error')
  t.equal(site.show().length, 1, 'that breaks nothing')
  await site.setPhase('leaving')
  await site.ended()
  t.same(values(site)(), [`${ID}=kyoto`], "the user's own stays")
})

t.test('another clusterset: the Event is on the property that says so', async (t) => {
  const site = await tokyo(t)
  site.api.put(property('clusterset.k8s.io', 'other'))
  site.start()
  const want =
    'agent: ClusterProperty clusterset.k8s.io is "other", but this cluster has joined clusterset "test": leave the other ' +
    'clusterset (with the product that wrote the property), or delete the property if no product uses it'
  await until(t, () => site.status.notReady(), [want], 'says what to do')
  await untilReported(t, site, ['ClusterProperty clusterset.k8s.io Warning Refused'])
})

t.test('another id in the Membership is a clear error', async (t) => {
  const site = await tokyo(t)
  site.start()
  await until(t, () => site.show().length, 1, 'runs')
  const ended = site.ended()
  const membership = site.api.get('Membership', 'self')!
  await Promise.all([
    t.rejects(ended, {
      name: MembershipChangedError.name,
      message:
        'Membership self says cluster id "kyoto", this agent runs as "tokyo": the id cannot change during a membership; restart the agent',
    }),
    site.api.apply({ ...membership, spec: { ...membership.spec, clusterId: 'kyoto' } }),
  ])
  t.equal(site.show().length, 1, 'nothing was removed')
  t.same(
    site.logger.lines.filter(({ message }) => message === 'left'),
    [],
  )
})

t.test('region and zone are those of the nodes, until a user says otherwise', async (t) => {
  const site = await tokyo(t)
  const put = (name: string, zone: string): void => {
    const labels = { 'topology.kubernetes.io/region': 'asia', 'topology.kubernetes.io/zone': zone }
    site.api.put(nodeObject(name, { metadata: { labels } }))
  }
  put('a', 'asia-1')
  site.start()
  const want = (...more: string[]): string[] => [...BOTH, ...more]
  await until(t, values(site), want('region.sealane.io=asia', 'zone.sealane.io=asia-1'), 'from one node')
  put('b', 'asia-2')
  await until(t, values(site), want('region.sealane.io=asia'), 'two zones')
  site.api.put(property('zone.sealane.io', 'asia-north'))
  await until(t, values(site), want('region.sealane.io=asia', 'zone.sealane.io=asia-north'), "the user's")
  site.api.drop('Node', 'b')
  put('a', 'asia-3')
  const region = site.api.get('ClusterProperty', 'region.sealane.io')!
  await site.api.apply({ ...region, spec: { value: 'edge' } })
  put('a', 'asia-4')
  await until(t, values(site), want('region.sealane.io=edge', 'zone.sealane.io=asia-north'), 'an edit stays')
  await site.setPhase('leaving')
  await site.ended()
  t.same(values(site)(), ['region.sealane.io=edge', 'zone.sealane.io=asia-north'])
})
