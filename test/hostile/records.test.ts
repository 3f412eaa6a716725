/** Keys and records that a member tries to take from another member, or from the platform. */
import { generateKeyPairSync } from 'node:crypto'
import type { ClusterId } from '../../model/ids.ts'
import type { EndpointSlice, MemberRecord, RecordBody } from '../../protocol/gen/broker.ts'
import { Site } from '../agent/site.ts'
import { FakeClusterset } from '../agent/fake-clusterset.ts'
import { eventually } from '../support/eventually.ts'
import { messageOf } from '../support/failure.ts'
import { namespaceObject } from '../support/objects/service-objects.ts'
import { attack } from './support/attack.ts'
import { outcomeOf } from './support/raw-channel.ts'
import { NO_FACTS } from './support/raw-join.ts'
import { RawMember, startTarget } from './support/raw-member.ts'
import { endpointRecord, exportRecord } from './support/raw-records.ts'

/** An X25519 public key, as `wg pubkey` prints it. */
function wireguardKey(): string {
  const { publicKey } = generateKeyPairSync('x25519')
  return publicKey.export({ type: 'spki', format: 'der' }).subarray(-32).toString('base64')
}

const ENDPOINT = { kind: 'Endpoint', namespace: '', name: 'paris.gw-lane0' }

await attack('key-of-absent-gateway', async (t) => {
  const { broker } = await startTarget(t)
  const key = wireguardKey()
  const paris = await RawMember.join(t, broker, 'paris')
  const mallory = await RawMember.join(t, broker, 'mallory', { podCidrs: ['10.66.0.0/16'] })
  const [owner, thief] = [await paris.publish().open(), await mallory.publish().open()]
  t.equal(await owner.put(endpointRecord('paris', 'gw', key)), 'ok')
  t.equal(await owner.remove(ENDPOINT), 'ok', 'the gateway is away')
  const refused = /^spec\.publicKey: ".*" is a key of cluster "paris", which stated it first: /
  t.match(await thief.put(endpointRecord('mallory', 'm', key)), refused)
  // The owner changes the key on the same node; the previous key still belongs to paris.
  t.equal(await owner.put(endpointRecord('paris', 'gw', wireguardKey())), 'ok')
  t.match(await thief.put(endpointRecord('mallory', 'm', key)), refused)
  t.equal(await owner.put(endpointRecord('paris', 'gw', key)), 'ok', 'the gateway is back')
})

await attack('key-after-restart', async (t) => {
  const { broker } = await startTarget(t)
  const key = wireguardKey()
  const paris = await RawMember.join(t, broker, 'paris')
  const mallory = await RawMember.join(t, broker, 'mallory', { podCidrs: ['10.66.0.0/16'] })
  const owner = await paris.publish().open()
  await owner.put(endpointRecord('paris', 'gw', key))
  await owner.remove(ENDPOINT)
  await broker.stop()
  await broker.start()
  const thief = await mallory.publish().open()
  t.match(await thief.put(endpointRecord('mallory', 'm', key)), /is a key of cluster "paris"/)
  await broker.tokens((store) => store.evict({ cluster: 'paris', force: true }))
  t.match(await thief.put(endpointRecord('mallory', 'm', key)), /is a key of cluster "paris"/, 'evicted is not left')
  const back = await RawMember.join(t, broker, 'paris')
  t.equal(await (await back.publish().open()).put(endpointRecord('paris', 'gw', key)), 'ok')
  await back.leave()
  t.equal(await thief.put(endpointRecord('mallory', 'm', key)), 'ok', 'who has left keeps nothing')
})

await attack('key-many-kept', async (t) => {
  const { broker } = await startTarget(t)
  const key = wireguardKey()
  const paris = await RawMember.join(t, broker, 'paris')
  const mallory = await RawMember.join(t, broker, 'mallory', { podCidrs: ['10.66.0.0/16'] })
  const [owner, thief] = [await paris.publish().open(), await mallory.publish().open()]
  await owner.put(endpointRecord('paris', 'gw', key))
  await owner.remove(ENDPOINT)
  const keys = Array.from({ length: 100 }, wireguardKey)
  const answers = await Promise.all(keys.map((one) => thief.put(endpointRecord('mallory', 'm', one))))
  t.same(new Set(answers), new Set(['ok']), 'its own keys come and go')
  t.match(await thief.put(endpointRecord('mallory', 'm', key)), /is a key of cluster "paris"/, 'that of paris stays')
  const taken = await Promise.all(keys.map((one, i) => owner.put(endpointRecord('paris', `gw${i}`, one))))
  t.equal(taken.filter((one) => one !== 'ok').length, 65, 'of its own, one in use and 64 former ones are kept')
  t.equal(await outcomeOf(paris.records()), 'ok')
})

await attack('gateways-without-end', async (t) => {
  const { broker } = await startTarget(t)
  const paris = await RawMember.join(t, broker, 'paris')
  const mallory = await RawMember.join(t, broker, 'mallory', { podCidrs: ['10.66.0.0/16'] })
  const stream = await mallory.publish().open()
  const gateway = (i: number): MemberRecord => endpointRecord('mallory', `m${i}`, wireguardKey())
  const answers = await Promise.all(Array.from({ length: 200 }, (_, i) => stream.put(gateway(i))))
  t.equal(answers.filter((one) => one === 'ok').length, 64)
  t.match(answers[64], /^records: cluster "mallory" has 64 Endpoints already, which is the limit$/)
  const heard = await paris.stored('mallory')
  t.equal(heard.filter((one) => one.startsWith('endpoint/')).length, 64, 'others hear of no more')
  t.equal(await stream.put(gateway(0)), 'ok', 'one that is there may change')
  t.equal(await stream.put(exportRecord('shop', 'web')), 'ok', 'and the rest goes on')
  t.equal(await stream.remove({ kind: 'Endpoint', namespace: '', name: 'mallory.m1-lane0' }), 'ok')
  t.equal(await stream.put(gateway(100)), 'ok', 'one that goes makes room')
  const other = await paris.publish().open()
  t.equal(await other.put(endpointRecord('paris', 'gw', wireguardKey())), 'ok', 'each member has its own limit')
})

await attack('ids-reserved', async (t) => {
  const { broker } = await startTarget(t)
  for (const id of ['broker', 'constructor', 'kube-system', 'sealane', 'sealane-system', 'self']) {
    const refused = new RegExp(`"${id}" is reserved: expected an id that names the cluster`)
    t.match(await outcomeOf(RawMember.join(t, broker, id)), refused, id)
    t.match(await messageOf(broker.token({ cluster: id })), refused, `a token for ${id}`)
  }
  for (const id of ['__proto__', 'hasOwnProperty', 'a.b', ''])
    t.match(await outcomeOf(RawMember.join(t, broker, id)), /^INVALID_ARGUMENT .*expected an RFC 1123 label/, id)
  t.same(await broker.tokens((store) => store.members()), [])
  const left = await broker.tokens(async (store) => (await store.list()).map(({ usesLeft }) => usesLeft))
  t.same(new Set(left), new Set([1]), 'no use of a token is gone')
})

function sliceRecord(namespace: string, address: string): MemberRecord {
  const endpoint = { addresses: [address], zoneHints: [] }
  const value: EndpointSlice = { service: 'web', addressType: 'IPv4', ports: [], endpoints: [endpoint] }
  return { namespace, name: 'web-1', body: { body: { $case: 'endpointSlice', value } } }
}

const GUARDED = ['default', 'kube-system', 'openshift-dns', 'sealane-system', 'sealane-broker']

await attack('namespaces-guarded', async (t) => {
  const { broker } = await startTarget(t)
  const mallory = await RawMember.join(t, broker, 'mallory')
  const stream = await mallory.publish().open()
  for (const namespace of GUARDED) {
    const refused = new RegExp(
      `^namespace: "${namespace}" is .*, or start the broker with --allow-namespace ${namespace}$`,
    )
    t.match(await stream.put(exportRecord(namespace, 'web')), refused)
    t.match(await stream.put(sliceRecord(namespace, '10.42.0.7')), refused)
  }
  const free = ['shop', 'default-eu', 'sealane', 'mcs-conformance-1234']
  for (const namespace of free) t.equal(await stream.put(exportRecord(namespace, 'web')), 'ok', namespace)
  const stored = await mallory.stored()
  t.same(
    stored.filter((one) => one.startsWith('serviceExport')).sort(),
    free.map((one) => `serviceExport/${one}/web`).sort(),
  )
  stream.call.cancel()
  await broker.stop()
  await broker.start({ allowedNamespaces: ['default'] })
  const again = await mallory.publish().open()
  t.equal(await again.put(exportRecord('default', 'web')), 'ok', 'what is allowed by name')
  t.match(await again.put(exportRecord('kube-system', 'web')), /^namespace: /, 'and nothing else')
})

await attack('namespaces-spelled', async (t) => {
  const { broker } = await startTarget(t)
  const mallory = await RawMember.join(t, broker, 'mallory')
  const spelled = [
    ...['Kube-System', 'KUBE-SYSTEM', 'kube-system.', '.kube-system', 'kube-system ', ' default', 'default\n'],
    ...['default\0', 'kube%2Dsystem', 'kube\u2010system', 'd\u0435fault', 'kube-system/x', '../default', ''],
  ]
  for (const namespace of spelled) {
    for (const record of [exportRecord(namespace, 'web'), sliceRecord(namespace, '10.42.0.7')]) {
      const stream = await mallory.publish().open()
      t.not(await stream.put(record), 'ok', JSON.stringify(namespace))
    }
  }
  t.same(
    (await mallory.stored()).filter((one) => !one.startsWith('cluster/')),
    [],
  )
})

await attack('namespaces-into-importer', async (t) => {
  const set = new FakeClusterset()
  const here = new Site(set, { id: 'tokyo', podCIDR: '10.50.0.0/16' })
  const lenient = new Site(set, { id: 'oslo', podCIDR: '10.51.0.0/16', config: { allowedNamespaces: ['default'] } })
  set.join({ id: 'mallory', podCIDRs: ['10.66.0.0/16'], globalCIDRs: [] })
  const guarded = [...GUARDED, 'shop']
  for (const namespace of guarded) {
    const key = { cluster: 'mallory' as ClusterId, namespace, name: 'web' }
    set.put(
      { ...key, kind: 'ServiceExport' },
      {
        kind: 'ServiceExport',
        uid: namespace,
        type: 'ClusterSetIP',
        ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
        sessionAffinity: 'None',
        ipFamilies: ['IPv4'],
        exportedLabels: {},
        exportedAnnotations: {},
      },
    )
  }
  for (const site of [here, lenient]) {
    await site.join()
    for (const name of guarded) site.api.put(namespaceObject(name))
    site.start()
    t.teardown(() => site.stop())
  }
  const imported = (site: Site): string[] => site.show().map((line) => line.split(' ')[0] ?? '')
  await eventually(() => imported(here).includes('shop/web') && imported(lenient).includes('shop/web'))
  t.same(imported(here), ['shop/web'], 'whatever the broker hands on')
  t.same(imported(lenient), ['default/web', 'shop/web'], 'unless it is allowed here')
  const reported = here.logger.lines.filter(({ fields }) => String(fields['why']).includes('namespace "default" is'))
  t.same(
    reported.map(({ fields }) => fields['record']).sort(),
    ['/ClusterSetIP/default/web', 'mallory/ServiceExport/default/web'],
    'each is told once',
  )
})

await attack('records-of-others', async (t) => {
  const { broker } = await startTarget(t)
  const paris = await RawMember.join(t, broker, 'paris')
  const mallory = await RawMember.join(t, broker, 'mallory', { podCidrs: ['10.66.0.0/16'] })
  const [owner, thief] = [await paris.publish().open(), await mallory.publish().open()]
  t.equal(await owner.put(endpointRecord('paris', 'gw', wireguardKey())), 'ok')
  t.match(await thief.put(endpointRecord('paris', 'gw', wireguardKey())), /^spec\.cluster: "paris": expected "mallory"/)
  t.match(await thief.put(sliceRecord('shop', '10.42.0.7')), /is outside the cluster's pod CIDRs/)
  const spec = { id: 'paris', index: 9, podCidrs: ['0.0.0.0/0'], serviceCidrs: [], globalCidrs: [], labels: [] }
  const bodies: NonNullable<RecordBody['body']>[] = [
    { $case: 'cluster', value: spec },
    { $case: 'clusterSetIp', value: { ips: ['10.42.0.1'] } },
    { $case: 'memberStatus', value: { notImported: [], leftOut: 0 } },
  ]
  for (const body of bodies) {
    const name = 'paris'
    const stream = await mallory.publish().open()
    t.not(await stream.put({ namespace: '', name, body: { body } }), 'ok', body.$case)
  }
  t.same(await mallory.stored('paris'), ['cluster//paris', 'endpoint//paris.gw-lane0'])
  const found = (await mallory.records()).find((one) => one.cluster === 'paris' && one.body?.body?.$case === 'cluster')
  t.match(found?.body?.body?.value, { podCidrs: ['10.42.0.0/16'] })
})

await attack('service-range-over-pods', async (t) => {
  const { broker } = await startTarget(t)
  const paris = await RawMember.join(t, broker, 'paris', { serviceCidrs: ['10.96.0.0/16'] })
  const global = async (): Promise<string> => {
    const members = await broker.tokens((store) => store.members())
    return members.map(({ id, globalCIDRs }) => `${id} ${globalCIDRs.join()}`).join('; ')
  }
  const ranges = { podCidrs: ['10.66.0.0/16'], serviceCidrs: ['10.42.0.0/16'] }
  const mallory = await RawMember.join(t, broker, 'mallory', ranges)
  t.equal(await global(), 'mallory ; paris ', 'at the join')
  const stream = await mallory.publish().open()
  t.equal(await stream.facts({ ...NO_FACTS, podCidrs: ['10.66.0.0/16'] }), 'ok')
  t.equal(await stream.facts({ ...NO_FACTS, ...ranges }), 'ok')
  t.equal(await global(), 'mallory ; paris ', 'and later')
  t.same((await paris.stored()).length, 1)
  const reported = await broker.tokens(async (store) => (await store.members()).map(({ clashes }) => clashes))
  t.same(reported, [
    [
      'service CIDR 10.42.0.0/16 of mallory was stated after pods of paris used 10.42.0.0/16: the two clusters do not reach each other',
    ],
    undefined,
  ])
  // Honest members that come later give way: their ranges are translated.
  await RawMember.join(t, broker, 'oslo', { podCidrs: ['10.96.0.0/20'] })
  t.match(await global(), /^mallory ; oslo 244\.\d+\.\d+\.0\/20; paris $/)
})

await attack('service-range-drops-itself', async (t) => {
  const set = new FakeClusterset()
  const paris = new Site(set, { id: 'paris', podCIDR: '10.42.0.0/16' })
  const spec = { id: 'mallory', index: 9, podCIDRs: ['10.66.0.0/16'], globalCIDRs: [], labels: {} }
  const key = { cluster: 'mallory' as ClusterId, kind: 'Cluster' as const, namespace: '', name: 'mallory' }
  set.put(key, { kind: 'Cluster', spec: { ...spec, serviceCIDRs: [] } })
  await paris.join()
  paris.start()
  t.teardown(() => paris.stop())
  const known = (): string[] =>
    paris.api
      .cache('Cluster')
      .list()
      .map(({ spec: { id } }) => id)
      .sort()
  await eventually(() => known().join() === 'mallory,paris')
  set.put(key, { kind: 'Cluster', spec: { ...spec, serviceCIDRs: ['10.42.1.0/24'] } })
  set.complete.add('mallory')
  set.spread()
  await eventually(() => known().join() === 'paris', { say: 'mallory is used no more' })
  const reasons = paris.logger.lines.map(({ fields }) => fields['why'])
  t.ok(reasons.includes('its service CIDR 10.42.1.0/24 overlaps the pod CIDRs of this cluster'))
})
