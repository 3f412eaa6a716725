/** The agent against the real broker over TLS on loopback. Only the Kubernetes side is in memory. */
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import t, { type Test } from 'tap'
import type { BrokerConfig } from '../../broker/config/broker-config.ts'
import { openBrokerStore } from '../support/broker-store.ts'
import type { ClusterProperty, EndpointSlice } from '../../model/objects.ts'
import { readMemberIdentity } from '../../protocol/membership/member-files.ts'
import { readCertificate } from '../../protocol/identity/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { nodeObject } from '../support/objects/node-objects.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { service, serviceExport, slice } from './site.ts'

import { Member, clock, startBroker } from './real-members.ts'

t.test('export, broker outage with restart of an agent, unexport', async (t) => {
  const directory = temporaryFolder(t)
  const brokerDirectory = join(directory, 'broker')
  let broker = await startBroker(brokerDirectory, 0)
  const milano = new Member('milano', directory)
  const paris = new Member('paris', directory)
  t.teardown(async () => {
    await Promise.all([milano.stop(), paris.stop()])
    await broker.stop()
  })
  for (const site of [milano, paris]) {
    await site.join(brokerDirectory, broker.port)
    site.start()
  }
  milano.api.put(service('shop', 'web'))
  milano.api.put(slice('shop', 'web', '10.42.0.5'))
  await eventually(() => paris.api.cache('Cluster').list().length === 2, { say: 'clusters know each other' })
  const global = paris.api.get('Cluster', 'milano')?.spec.globalCIDRs[0]
  t.match(global, /^244\.\d+\.0\.0\/16$/, 'overlapping clusters got global CIDRs')

  const times: number[] = []
  for (let i = 0; i < 20; i++) {
    const started = performance.now()
    milano.api.put(serviceExport('shop', 'web'))
    await eventually(() => paris.shown().length === 2, { intervalMs: 1, say: 'paris finds the service' })
    times.push(performance.now() - started)
    if (i === 19) break
    milano.api.drop('ServiceExport', 'web', 'shop')
    await eventually(() => paris.shown().length === 0, { intervalMs: 1, say: 'paris forgets the service' })
  }
  times.sort((a, b) => a - b)
  t.comment(`export to import: median ${times[10]?.toFixed(1)} ms, worst ${times[19]?.toFixed(1)} ms`)
  const ip = paris.api.get('ServiceImport', 'web', 'shop')?.spec.ips?.[0] ?? ''
  const want = [
    `shop/web ClusterSetIP ${ip} http:80 from milano Ready`,
    `web<-milano http:8080 ${global?.replace('.0.0/16', '.0.5')}(10-42-0-5)`,
  ]
  await eventually(() => JSON.stringify(paris.shown()) === JSON.stringify(want)).catch(() => undefined)
  t.same(paris.shown(), want)

  await broker.stop()
  await paris.stop()
  paris.api.writes.length = 0
  paris.start()
  milano.api.put(slice('shop', 'web', '10.42.0.6'))
  await eventually(() => milano.shown()[1]?.includes('10.42.0.6'), {
    say: 'milano follows its own pods without the broker',
  })
  await eventually(() => paris.status.notReady().length === 0)
  await eventually(() => paris.status.plans().get('agent')?.includes('Cluster/milano'), {
    say: 'the saved replica is used',
  })
  t.same(paris.shown(), want, 'frozen')
  t.same(paris.api.writes, [], 'untouched')
  t.notMatch(paris.status.plans().get('agent'), 'broker: connected', 'and it says why')

  broker = await startBroker(brokerDirectory, broker.port)
  await eventually(() => paris.shown()[1]?.includes('.0.6('), {
    deadlineMs: 15_000,
    say: 'the broker is back, the difference arrives',
  })
  milano.api.drop('ServiceExport', 'web', 'shop')
  await eventually(() => paris.shown().length === 0, { say: 'unexported' })
  await eventually(() => paris.status.plans().get('agent')?.startsWith('broker: connected\n'), {
    deadlineMs: 15_000,
    say: 'publishing goes on as well, which comes back by itself',
  })
})

t.test('a service of 5,000 endpoints: slices of at most 100, one flip is one write', async (t) => {
  const directory = temporaryFolder(t)
  // A report of the broker itself would cause one more write, so the test delays it.
  const broker = await startBroker(join(directory, 'broker'), 0, { contactMs: 3_600_000 })
  const milano = new Member('milano', directory)
  const paris = new Member('paris', directory)
  t.teardown(async () => {
    await Promise.all([milano.stop(), paris.stop()])
    await broker.stop()
  })
  for (const site of [milano, paris]) {
    await site.join(join(directory, 'broker'), broker.port)
    site.start()
  }
  // The slices have the sizes that the EndpointSlice controller chooses, and one slice is as large as the API allows.
  const part = (i: number, size: number, flipped = -1): EndpointSlice => {
    const pods = Array.from(
      { length: size },
      (_, j) => `${j === flipped ? '!' : ''}10.42.${i * 4 + (j >> 8)}.${j & 255}`,
    )
    const metadata = { name: `web-${i}`, namespace: 'shop', labels: { 'kubernetes.io/service-name': 'web' } }
    return slice('shop', 'web', pods.join(' '), { metadata })
  }
  milano.api.put(service('shop', 'web', { clusterIP: 'None' }))
  for (let i = 0; i < 40; i += 1) milano.api.put(part(i, 100))
  milano.api.put(part(40, 1000))
  milano.api.put(serviceExport('shop', 'web'))
  const imported = (site: Member): readonly EndpointSlice[] =>
    site.api
      .cache('EndpointSlice')
      .list()
      .filter(({ metadata }) => metadata.labels?.['multicluster.kubernetes.io/source-cluster'] === 'milano')
  const sizes = (site: Member): string => {
    const counts = imported(site).map(({ endpoints }) => endpoints?.length ?? 0)
    return `${counts.length} slices, largest ${Math.max(...counts)}, ${counts.reduce((sum, one) => sum + one, 0)} in all`
  }
  for (const site of [milano, paris]) {
    await eventually(() => sizes(site) === '50 slices, largest 100, 5000 in all', { deadlineMs: 30_000 }).catch(
      () => undefined,
    )
    t.equal(sizes(site), '50 slices, largest 100, 5000 in all', `in ${site.id}`)
  }
  await eventually(() => paris.api.get('ServiceImport', 'web', 'shop')?.status !== undefined)
  for (const [i, size] of [
    [7, 100],
    [40, 1000],
  ] as const) {
    paris.api.writes.length = 0
    milano.api.put(part(i, size, 50))
    const notReady = (): number =>
      imported(paris)
        .flatMap(({ endpoints }) => endpoints ?? [])
        .filter(({ conditions }) => conditions?.ready === false).length
    await eventually(() => notReady() === (i === 7 ? 1 : 2), { intervalMs: 2, deadlineMs: 30_000 })
    t.same(
      paris.api.writes.map(({ verb, kind }) => `${verb} ${kind}`),
      ['apply EndpointSlice'],
      'one write',
    )
  }
  t.same(
    paris.logger.lines.filter(({ level }) => level === 'error'),
    [],
  )
})

interface OneMember {
  readonly milano: Member
  readonly directory: string
  /** Of the broker. */
  readonly state: string
  readonly port: number
}

async function oneMember(t: Test, change: Partial<BrokerConfig> = {}): Promise<OneMember> {
  const directory = temporaryFolder(t)
  const state = join(directory, 'broker')
  const broker = await startBroker(state, 0, change)
  const milano = new Member('milano', directory)
  t.teardown(async () => {
    await milano.stop()
    await broker.stop()
  })
  await milano.join(state, broker.port)
  return { milano, directory, state, port: broker.port }
}

t.test('whatever the cluster says about its id, the certificate is renewed', async (t) => {
  const { milano } = await oneMember(t, { memberCertificateMs: 60_000 })
  const foreign: ClusterProperty = {
    apiVersion: 'about.k8s.io/v1beta1',
    kind: 'ClusterProperty',
    metadata: { name: 'cluster.clusterset.k8s.io' },
    spec: { value: 'kyoto' },
  }
  milano.api.put(foreign)
  const first = await milano.serial()
  milano.start()
  const problem =
    'ClusterProperty cluster.clusterset.k8s.io is "kyoto", but this cluster has joined as "milano": ' +
    'set the property to milano, delete it, or run "sealane leave" and join under the id that it names'
  await eventually(async () => (await milano.serial()) !== first, { deadlineMs: 15_000, say: 'renewed' })
  t.same(milano.status.notReady(), [`agent: ${problem}`], 'nothing is published meanwhile')
  t.same(
    milano.api.events.map(({ regarding, type, reason, note }) => [regarding.name, type, reason, note]),
    [['cluster.clusterset.k8s.io', 'Warning', 'Refused', problem]],
  )
  milano.api.drop('ClusterProperty', 'cluster.clusterset.k8s.io')
  await eventually(() => milano.status.plans().get('agent')?.startsWith('broker: connected\n'), { say: 'goes on' })
})

t.test('an evicted cluster says so, and keeps what it knows', async (t) => {
  const { milano, state } = await oneMember(t)
  milano.start()
  await eventually(() => milano.status.plans().get('agent')?.startsWith('broker: connected\n'), { say: 'connected' })
  const tokens = await openBrokerStore(state, clock)
  t.teardown(() => tokens.close())
  const { evictedAtMs } = await tokens.evict({ cluster: 'milano', force: true })
  const at = new Date(evictedAtMs).toISOString().replace(/\.\d+Z$/, 'Z')
  const said = `cluster "milano" was evicted at ${at}: join again with a new token`
  await eventually(() => milano.api.events.length > 0, { say: 'an Event' })
  t.same(
    milano.api.events.map(({ regarding, type, reason, note }) => [regarding.kind, type, reason, note]),
    [['Membership', 'Warning', 'Refused', `the broker refuses this cluster: ${said}`]],
  )
  const errors = milano.logger.lines.filter(({ level }) => level === 'error')
  t.same(
    errors.map(({ message, fields }) => [message, fields['why']]),
    [['the broker refuses this cluster', said]],
  )
  await eventually(() => milano.status.plans().get('agent')?.startsWith(`broker: ${said}\n`), { say: 'in the plan' })
  t.equal(milano.api.get('Cluster', 'milano')?.spec.id, 'milano', 'what cannot be seen stays')
})

/** milano has joined, and its certificate has expired. */
async function expiredMember(t: Test, config: Partial<BrokerConfig>) {
  const directory = temporaryFolder(t)
  const state = join(directory, 'broker')
  const short = await startBroker(state, 0, { memberCertificateMs: 300 })
  const milano = new Member('milano', directory)
  await milano.join(state, short.port)
  await short.stop()
  const identity = await readMemberIdentity(join(directory, 'milano', 'identity'))
  const endsAtMs = identity === undefined ? Infinity : readCertificate(identity.certificate).notAfterMs
  await eventually(() => clock.now() > endsAtMs)
  const start = async (): Promise<number> => {
    const broker = await startBroker(state, short.port, config)
    t.teardown(() => broker.stop())
    return broker.port
  }
  t.teardown(() => milano.stop())
  const connected = (): boolean => milano.status.plans().get('agent')?.startsWith('broker: connected\n') === true
  return { milano, state, endsAtMs, start, connected }
}

t.test('a member that was off until its certificate had expired comes back by itself', async (t) => {
  const { milano, endsAtMs, start, connected } = await expiredMember(t, {})
  milano.start()
  const at = new Date(endsAtMs).toISOString()
  const waits = `the certificate expired at ${at}; it is renewed when the broker answers: `
  const isSaid = (): boolean => milano.logger.lines.some(({ fields }) => String(fields['why']).startsWith(waits))
  await eventually(isSaid, { say: 'the broker is away' })
  const first = await milano.serial()
  await start()
  await eventually(connected, { deadlineMs: 30_000, say: 'connected' })
  t.not(await milano.serial(), first, 'renewed')
  t.same(milano.api.events, [], 'no refusal is reported for the moment before the renewal')
})

t.test('after the grace time: it says so, and a join beside the running agent mends it', async (t) => {
  const { milano, state, endsAtMs, start, connected } = await expiredMember(t, { renewalGraceMs: 0 })
  const port = await start()
  const serial = await milano.serial()
  milano.start()
  await eventually(() => milano.api.events.length > 0, { say: 'an Event' })
  const at = new Date(endsAtMs).toISOString().replace(/\.\d+Z$/, 'Z')
  const said = `certificate ${serial} of cluster "milano" expired at ${at}: join again with a new token`
  t.same(
    milano.api.events.map(({ regarding, type, reason, note }) => [regarding.kind, type, reason, note]),
    [['Membership', 'Warning', 'Refused', `the broker refuses this cluster: ${said}`]],
  )
  await milano.join(state, port)
  await eventually(connected, { deadlineMs: 30_000, say: 'connected with the new identity' })
})

t.test('ClusterProperties reach the other members without a new join', async (t) => {
  const { directory, state, port, milano } = await oneMember(t)
  const paris = new Member('paris', directory)
  t.teardown(() => paris.stop())
  await paris.join(state, port)
  paris.start()
  milano.start({ facts: { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'], labels: {}, version: '0' } })
  const seen = (): unknown => paris.api.get('Cluster', 'milano')?.spec.properties
  const put = (name: string, value: string): void =>
    milano.api.put({ apiVersion: 'about.k8s.io/v1beta1', kind: 'ClusterProperty', metadata: { name }, spec: { value } })
  const labels = { 'topology.kubernetes.io/region': 'eu-south' }
  milano.api.put(nodeObject('a', { metadata: { labels } }))
  put('tier.example.org', 'gold')
  const want = (values: Record<string, string>): Promise<unknown> =>
    eventually(() => isDeepStrictEqual(seen(), values), { say: JSON.stringify(values) })
  await want({ 'region.sealane.io': 'eu-south', 'tier.example.org': 'gold' })
  put('tier.example.org', 'silver')
  await want({ 'region.sealane.io': 'eu-south', 'tier.example.org': 'silver' })
  put('long.example.org', 'x'.repeat(1025))
  milano.api.drop('ClusterProperty', 'tier.example.org')
  milano.api.put(nodeObject('b'))
  await want({ 'region.sealane.io': 'eu-south' })
  milano.api.put(nodeObject('b', { metadata: { labels: { 'topology.kubernetes.io/region': 'asia' } } }))
  await eventually(() => seen() === undefined, { say: 'none is left' })
  t.match(
    milano.logger.lines.filter(({ message }) => message.startsWith('ClusterProperties are not sent')),
    [{ fields: { why: '"long.example.org"' } }],
  )
})
