/** Records that no broker of ours would send, from a broker that has the right CA. */
import { eventually } from '../support/eventually.ts'
import { attack } from './support/attack.ts'
import type { LooseRecord } from './support/fake-broker.ts'
import { puts, unmoved } from './support/unmoved.ts'
import { Victim, clusterRecord, endpointRecord, exported, ipRecord, mapped, sliceRecord } from './support/victim.ts'

/** Values that would become a line of their own, or commands for another program, if they were copied into text. */
const INJECTED = [
  'a; flush ruleset',
  'a\nadd rule ip x y accept',
  '"; drop',
  '$(reboot)',
  '\u001b[31mred',
  '../../../x',
  '{ }',
]

await attack('broker-false-owner', async (t) => {
  await unmoved(
    t,
    puts(
      clusterRecord('milano', { index: 1, podCidrs: ['10.88.0.0/16'] }, 'evil'),
      clusterRecord('evil', { index: 7, podCidrs: ['10.88.0.0/16'] }, 'milano'),
      { ...endpointRecord('paris', { node: 'gw2' }), cluster: 'evil' },
      { ...clusterRecord('evil', { index: 7 }), cluster: '' },
    ),
    'the record claims to be cluster',
  )
})

await attack('broker-names', async (t) => {
  const bad = ['..', '.', 'Web', 'we b', '-web', 'web-', 'a'.repeat(64), 'web.shop', 'w\u0000b', '', ...INJECTED]
  await unmoved(
    t,
    puts(
      ...bad.flatMap((name) => [exported('paris', 'shop', name), exported('paris', name, 'web')]),
      ...bad.map((name) => clusterRecord(name, { index: 7, podCidrs: ['10.88.0.0/16'] })),
      ...bad.filter((name) => name !== 'web.shop').map((node) => endpointRecord('paris', { node })),
      ...bad.map((name) => sliceRecord('paris', `shop/${name}`, ['10.44.0.9'])),
      ...bad.map((name) => ipRecord(`shop/${name}`, ['245.0.0.5'])),
    ),
  )
})

await attack('broker-long-names', async (t) => {
  const label = 'a'.repeat(62)
  const nodes = [`${label}.${label}.${label}.${label}.a`, `${label}.${label}.${label}.${'a'.repeat(50)}`]
  await unmoved(t, puts(...nodes.map((node) => endpointRecord('paris', { node, lane: 3 }))), 'characters')
})

await attack('broker-namespaces', async (t) => {
  const victim = await unmoved(
    t,
    puts(
      ...['kube-system', 'kube-public', 'openshift-dns', 'absent'].flatMap((namespace) => [
        exported('paris', namespace, 'web'),
        sliceRecord('paris', `${namespace}/web`, ['10.44.0.9']),
        ipRecord(`${namespace}/web`, ['245.0.0.77']),
      ]),
    ),
    'is a system namespace',
  )
  t.notOk(victim.files().some((name) => name.includes('kube-public') || name.includes('absent')))
})

await attack('broker-clusterset-ips', async (t) => {
  const bad = ['10.43.0.1', '192.0.2.10', '10.42.1.7', '0.0.0.0', '255.255.255.255', '127.0.0.1', 'fd00::1', 'x', '']
  await unmoved(
    t,
    puts(
      ...bad.map((ip, i) => ipRecord(`shop/new-${i}`, [ip])),
      // Only the broker assigns addresses, so what a member says about them is ignored.
      ipRecord('shop/web', ['245.0.0.99'], 'paris'),
    ),
  )
  const victim = await Victim.start(t)
  await victim.caughtUp()
  for (const ip of bad) {
    victim.broker.put(ipRecord('shop/web', [ip]))
    await victim.caughtUp()
    if (ip !== '') t.notMatch(victim.plan(), `${ip} . tcp . 80`, ip)
    t.strictSame(victim.api.cache('ServiceImport').get('web', 'shop')?.spec.ips ?? [], [], 'told as none')
  }
})

await attack('broker-endpoint-addresses', async (t) => {
  const bad = [
    '10.42.1.7',
    '192.0.2.10',
    '10.43.0.1',
    '127.0.0.1',
    '169.254.169.254',
    '224.0.0.1',
    '10.44.0.8/32',
    '',
    'x',
  ]
  await unmoved(t, puts(sliceRecord('paris', 'shop/web', ['10.44.0.8', ...bad])), 'outside the pod CIDRs')
})

await attack('broker-injected-text', async (t) => {
  const port = { protocol: 'TCP', port: 80, appProtocol: undefined }
  const web = sliceRecord('paris', 'shop/web', ['10.44.0.8'])
  const texts = (text: string): LooseRecord[] => [
    exported('paris', 'shop', 'web-2', { ports: [{ ...port, name: text }] }),
    exported('paris', 'shop', 'web-2', { ports: [{ ...port, name: 'http', appProtocol: text }] }),
    exported('paris', 'shop', 'web-2', { trafficDistribution: text }),
    exported('paris', 'shop', 'web-2', { internalTrafficPolicy: text }),
    exported('paris', 'shop', 'web-2', { exportedLabels: [{ key: text, value: 'x' }] }),
    exported('paris', 'shop', 'web-2', { exportedLabels: [{ key: 'x', value: text }] }),
    exported('paris', 'shop', 'web-2', { type: text }),
    exported('paris', 'shop', 'web-2', { ports: [{ ...port, protocol: text, name: 'http' }] }),
    endpointRecord('paris', { publicKey: text }),
    mapped(web, (slice) => ({ ...slice, ports: [...slice.ports, { ...port, name: text }] })),
    mapped(web, (slice) => ({ ...slice, endpoints: slice.endpoints.map((one) => ({ ...one, zone: text })) })),
    mapped(web, (slice) => ({ ...slice, endpoints: slice.endpoints.map((one) => ({ ...one, hostname: text })) })),
    mapped(web, (slice) => ({ ...slice, endpoints: slice.endpoints.map((one) => ({ ...one, nodeName: text })) })),
    mapped(web, (slice) => ({ ...slice, endpoints: slice.endpoints.map((one) => ({ ...one, zoneHints: [text] })) })),
    mapped(web, (slice) => ({ ...slice, endpoints: slice.endpoints.map((one) => ({ ...one, pod: text })) })),
  ]
  await unmoved(t, puts(...INJECTED.flatMap(texts)))
})

await attack('broker-our-labels', async (t) => {
  const victim = await Victim.start(t)
  await victim.caughtUp()
  const labels = [
    { key: 'app.kubernetes.io/managed-by', value: 'someone' },
    { key: 'multicluster.kubernetes.io/source-cluster', value: 'milano' },
  ]
  victim.broker.put(exported('paris', 'shop', 'web', { exportedLabels: labels }))
  await victim.caughtUp()
  const found = victim.api.cache('ServiceImport').get('web', 'shop')
  t.equal(found?.metadata.labels?.['app.kubernetes.io/managed-by'], 'sealane')
  victim.broker.remove({ cluster: 'paris', kind: 'ServiceExport', namespace: 'shop', name: 'web' })
  victim.broker.synced(['paris'])
  await eventually(() => victim.api.cache('ServiceImport').get('web', 'shop') === undefined, { deadlineMs: 20_000 })
  t.pass('and it goes again')
})

await attack('broker-absurd-numbers', async (t) => {
  const victim = await unmoved(t, ({ broker }) => {
    const huge = Number.MAX_SAFE_INTEGER
    broker.put({ ...sliceRecord('paris', 'shop/web', ['10.44.0.8']), createdAtMs: huge })
    broker.put({ ...clusterRecord('paris'), createdAtMs: huge })
    const port = { name: 'http', protocol: 'TCP', appProtocol: undefined }
    for (const number of [0, 65_536, 0xffff_ffff]) {
      broker.put(exported('paris', 'shop', 'web', { ports: [{ ...port, port: number }] }))
      broker.put(sliceRecord('paris', 'shop/web', ['10.44.0.8'], { ports: [{ ...port, port: number }] }))
      broker.put(exported('paris', 'shop', 'web', { sessionAffinityTimeoutSeconds: number }))
      broker.put(endpointRecord('paris', { candidates: [{ kind: 'public', address: '192.0.2.20', port: number }] }))
    }
    for (const lane of [256, 0xffff_ffff]) broker.put(endpointRecord('paris', { lane }))
    for (const index of [65_536, 0xffff_ffff]) broker.put(clusterRecord('paris', { index }))
  })
  victim.broker.say({
    $case: 'contact',
    value: { silent: [{ cluster: 'paris', forMs: Number.MAX_SAFE_INTEGER }] },
  })
  const inContact = (): string | undefined =>
    victim.api
      .cache('Cluster')
      .get('paris')
      ?.status?.conditions?.find(({ type }) => type === 'InContact')?.status
  await eventually(() => inContact() === 'False', { deadlineMs: 10_000, say: 'it is told as not heard' })
  const { MAX_SAFE_INTEGER } = Number
  for (const nowMs of [0, MAX_SAFE_INTEGER, 0]) victim.broker.say({ $case: 'contact', value: { silent: [], nowMs } })
  await eventually(() => inContact() === 'True', { deadlineMs: 10_000, say: 'and as heard again' })
  t.pass('a silence since before all time')
})

await attack('broker-octets', async (t) => {
  await unmoved(t, ({ broker }) => {
    const random = Buffer.from(Array.from({ length: 4096 }, (_, i) => (i * 7919) % 256))
    broker.raw(Buffer.alloc(0), Buffer.from([0]), Buffer.alloc(2 * 1024 * 1024), random, Buffer.alloc(100, 0xff))
    broker.raw(...Array.from({ length: 200 }, (_, i) => random.subarray(i, i + 50)))
  })
})

await attack('broker-addresses', async (t) => {
  const nobody = Array.from({ length: 400 }, (_, i) => `127.0.0.1:${i + 1}`)
  for (const addresses of [nobody, [...INJECTED, '', '127.0.0.1:0', 'a'.repeat(4000)], ['127.0.0.1:9', ...INJECTED]]) {
    const victim = await Victim.start(t)
    await victim.caughtUp()
    const { broker } = victim
    const [plan, before] = [victim.plan(), broker.watches]
    broker.say({ $case: 'reset', value: { epoch: 'another', resumed: false, addresses } })
    for (let round = 1; round <= 3; round += 1) {
      broker.endWatches()
      await eventually(() => broker.watches >= before + round, {
        deadlineMs: 20_000,
        say: `it is back, round ${round}`,
      })
      await victim.caughtUp()
    }
    t.equal(victim.plan(), plan)
  }
})

await attack('broker-empty-snapshot', async (t) => {
  await unmoved(t, ({ broker }) => {
    broker.say({ $case: 'reset', value: { epoch: 'another', resumed: false, addresses: [] } })
    broker.say({ $case: 'batch', value: { events: [], revision: 0 } })
    broker.say({ $case: 'synced', value: { revision: 0, complete: [], departed: [] } })
  })
})

await attack('broker-many-gateways', async (t) => {
  const victim = await Victim.start(t)
  const gateways = Array.from({ length: 300 }, (_, i) => {
    const publicKey = Buffer.alloc(32, `key of gateway ${i}`).toString('base64')
    return { ...endpointRecord('paris', { node: `a${i}`, publicKey }), createdAtMs: 1000 + i }
  })
  victim.broker.put(...gateways)
  await victim.caughtUp()
  const imported = victim.api
    .cache('Endpoint')
    .list()
    .filter(({ spec }) => spec.cluster === 'paris')
  t.equal(imported.length, 64)
  t.ok(
    imported.some(({ spec }) => spec.node === 'gw'),
    'those that came first stay',
  )
  t.ok(victim.reportedOf('237 of 301 Endpoints'), 'and it is told')
})

await attack('broker-flood-elsewhere', async (t) => {
  const victim = await unmoved(t, ({ broker }) => {
    for (let i = 0; i < 3000; i += 500) {
      const names = Array.from({ length: 500 }, (_, n) => `s-${i + n}`)
      broker.put(...names.map((name) => exported('paris', 'absent', name)))
      broker.put(...names.map((name) => exported('paris', 'kube-system', name)))
    }
  })
  const lines = victim.logger.lines.filter(({ level }) => level !== 'debug').length
  t.ok(lines < 200, `${lines} lines in the log`)
})
