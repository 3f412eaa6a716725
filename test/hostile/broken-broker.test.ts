/** Records that no broker of ours would send, from one that has the right CA. */
import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { createKey } from '../../protocol/identity/keys.ts'
import { readMemberIdentity } from '../../protocol/identity/member-files.ts'
import { fingerprint } from '../../protocol/identity/pem.ts'
import { readCertificate } from '../../protocol/identity/read-certificate.ts'
import { createCsr } from '../../protocol/identity/x509.ts'
import { runCli } from '../cli/run-cli.ts'
import { FileSite } from '../cluster/file-site.ts'
import { eventually } from '../support/eventually.ts'
import { attack } from './support/attack.ts'
import { FakeBroker, type LooseRecord } from './support/fake-broker.ts'
import {
  Victim,
  type VictimInit,
  clusterRecord,
  endpointRecord,
  exported,
  ipRecord,
  mapped,
  sliceRecord,
} from './support/victim.ts'

const OWN = { index: 1, podCidrs: ['10.42.0.0/16'], serviceCidrs: ['10.43.0.0/16'] }
/** What would be text of another line, or of another program. */
const INJECTED = [
  'a; flush ruleset',
  'a\nadd rule ip x y accept',
  '"; drop',
  '$(reboot)',
  '\u001b[31mred',
  '../../../x',
  '{ }',
]

const JOINING = `
apiVersion: sealane.io/v1alpha1
kind: Site
metadata: { name: milano }
spec: { podCIDRs: [10.42.0.0/16], serviceCIDRs: [10.43.0.0/16], gateways: [{ node: gw, lane: 0 }] }
`

/** Nothing of the victim moves, whatever `send` does; once the agent has seen all of it. `told`: words of its log. */
async function unmoved(t: Test, send: (victim: Victim) => void, told?: string): Promise<Victim> {
  const victim = await Victim.start(t)
  await victim.caughtUp()
  const [plan, holds] = [victim.plan(), victim.holds()]
  send(victim)
  await victim.caughtUp()
  t.equal(victim.plan(), plan, 'no route, no lane and no nft text')
  t.strictSame(victim.holds(), holds, 'no object and no file')
  if (told !== undefined) {
    await eventually(() => victim.toldOf(told), { deadlineMs: 20_000, say: `the log says ${told}` })
    t.pass('and it is told')
  }
  return victim
}

function puts(...records: readonly LooseRecord[]) {
  return ({ broker }: Victim): void => {
    for (const record of records) broker.put(record)
  }
}

await attack('broker-own-pods', (t) =>
  each(
    t,
    [['10.99.0.0/16'], ['0.0.0.0/0'], [], ['10.42.0.0/17'], ['10.42.0.0/16', '192.0.2.0/24'], ['nonsense']],
    (podCidrs) => puts(clusterRecord('milano', { ...OWN, podCidrs })),
  ),
)

await attack('broker-own-services', (t) =>
  each(t, [[], ['10.96.0.0/12']], (serviceCidrs) =>
    puts(
      clusterRecord('milano', { ...OWN, serviceCidrs }),
      clusterRecord('evil', { index: 9, podCidrs: ['10.43.0.0/16'], serviceCidrs: [] }),
    ),
  ),
)

await attack('broker-own-index', (t) =>
  each(t, [2, 0, 65_535], (index) => puts(clusterRecord('milano', { ...OWN, index }))),
)

await attack('broker-own-global', (t) =>
  each(
    t,
    [['192.168.0.0/16'], ['10.43.0.0/16'], ['0.0.0.0/0'], ['244.1.0.0/24'], ['244.1.0.0/16', '244.2.0.0/16'], ['x']],
    (globalCidrs) => puts(clusterRecord('milano', { ...OWN, globalCidrs })),
  ),
)

await attack('broker-own-labels', async (t) => {
  await unmoved(t, puts(clusterRecord('milano', { ...OWN, labels: [{ key: 'region', value: 'elsewhere' }] })))
})

await attack('broker-own-export', async (t) => {
  await unmoved(
    t,
    puts(
      exported('milano', 'shop', 'node-login'),
      sliceRecord('milano', 'shop/node-login', ['192.0.2.10', '10.43.0.1', '10.42.0.5']),
      ipRecord('shop/node-login', ['245.0.0.66']),
    ),
  )
})

await attack('broker-own-endpoints', async (t) => {
  await unmoved(
    t,
    puts(
      sliceRecord('milano', 'shop/shelf', ['192.0.2.10']),
      exported('milano', 'shop', 'shelf', {
        ports: [{ name: 'http', protocol: 'TCP', port: 22, appProtocol: undefined }],
      }),
      endpointRecord('milano', { node: 'other' }),
      endpointRecord('milano', { publicKey: Buffer.alloc(32, 'evil').toString('base64') }),
    ),
  )
})

await attack('broker-own-gone', async (t) => {
  await unmoved(t, ({ broker }) => {
    broker.remove({ cluster: 'milano', kind: 'Cluster', namespace: '', name: 'milano' })
    broker.synced(['', 'milano', 'paris'], ['milano'])
  })
})

await attack('broker-own-ranges', async (t) => {
  const taken = ['10.42.0.0/16', '10.42.1.0/24', '10.40.0.0/13', '10.43.0.0/24', '0.0.0.0/0']
  await unmoved(
    t,
    puts(...taken.map((cidr, i) => clusterRecord(`evil-${i}`, { index: 20 + i, podCidrs: [cidr], serviceCidrs: [] }))),
    "overlaps this cluster's own",
  )
})

await attack('broker-false-owner', async (t) => {
  await unmoved(
    t,
    puts(
      clusterRecord('milano', { index: 1, podCidrs: ['10.88.0.0/16'] }, 'evil'),
      clusterRecord('evil', { index: 7, podCidrs: ['10.88.0.0/16'] }, 'milano'),
      { ...endpointRecord('paris', { node: 'gw2' }), cluster: 'evil' },
      { ...clusterRecord('evil', { index: 7 }), cluster: '' },
    ),
    'it claims to be cluster',
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
      // Whatever a member says of it, only the broker gives addresses.
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
  victim.broker.say({ $case: 'contact', value: { silent: [] } })
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

await attack('broker-empty-snapshot', async (t) => {
  await unmoved(t, ({ broker }) => {
    broker.say({ $case: 'reset', value: { epoch: 'another', resumed: false } })
    broker.say({ $case: 'batch', value: { events: [], revision: 0 } })
    broker.say({ $case: 'synced', value: { revision: 0, complete: [], departed: [] } })
  })
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

await attack('broker-renewal', async (t) => {
  const HOUR_MS = 3_600_000
  const answer = (certificate: Uint8Array, ca: Uint8Array = Buffer.from('ca')) => ({
    certificate: Buffer.from(certificate),
    caBundle: [Buffer.from(ca)],
  })
  const otherKey = await createCsr(createKey())
  const bad: Readonly<Record<string, VictimInit['renewal']>> = {
    rubbish: (broker) => () => Promise.resolve(answer(Buffer.from('rubbish'), broker.caCertificate)),
    'of another cluster': (broker) => async (csr) =>
      answer(await broker.certificateFor('paris', csr), broker.caCertificate),
    'for another key': (broker) => async () =>
      answer(await broker.certificateFor('milano', otherKey), broker.caCertificate),
    'with a CA that is none': (broker) => async (csr) => answer(await broker.certificateFor('milano', csr)),
    'with no CA': (broker) => async (csr) => ({
      certificate: Buffer.from(await broker.certificateFor('milano', csr)),
      caBundle: [],
    }),
    'ended already': (broker) => async (csr) =>
      answer(await broker.certificateFor('milano', csr, 5 * HOUR_MS), broker.caCertificate),
  }
  for (const [name, renewal] of Object.entries(bad)) {
    await t.test(name, async (t) => {
      const victim = await Victim.start(t, { ageMs: 3 * HOUR_MS, renewal })
      await eventually(() => victim.toldOf('certificate not renewed yet'), { deadlineMs: 20_000 })
      const identity = await readMemberIdentity(join(victim.site.state, 'identity'))
      t.equal(readCertificate(identity?.certificate ?? new Uint8Array()).cluster, 'milano')
      t.strictSame(identity?.caBundle.map(fingerprint), [fingerprint(victim.broker.caCertificate)])
      t.ok(readCertificate(identity?.certificate ?? new Uint8Array()).renewAtMs < Date.now(), 'it is the one of before')
    })
  }
  const good = await Victim.start(t, {
    ageMs: 3 * HOUR_MS,
    renewal: (broker) => async (csr) => answer(await broker.certificateFor('milano', csr), broker.caCertificate),
  })
  await eventually(() => good.toldOf('certificate renewed'), { deadlineMs: 20_000 })
})

await attack('broker-join-answer', async (t) => {
  const broker = await FakeBroker.start(t, [])
  const csr = await createCsr(createKey())
  const bad: Readonly<Record<string, FakeBroker['joined']>> = {
    'other pods': { podCidrs: ['10.99.0.0/16'], serviceCidrs: ['10.43.0.0/16'] },
    'more pods': { podCidrs: ['10.42.0.0/16', '192.0.2.0/24'], serviceCidrs: ['10.43.0.0/16'] },
    'no Services': { podCidrs: ['10.42.0.0/16'], serviceCidrs: [] },
    'global CIDR elsewhere': { globalCidrs: ['192.168.0.0/16'] },
    'global CIDR of another size': { globalCidrs: ['244.0.0.0/24'] },
    'global range is all there is': { globalRange: '0.0.0.0/0' },
    'global range on the pods': { globalRange: '10.0.0.0/8' },
    'clusterset IPs on the Services': { clustersetIpRange: '10.43.0.0/16' },
    'clusterset IPs on loopback': { clustersetIpRange: '127.0.0.0/8' },
    'clusterset IPs of IPv6': { clustersetIpRange: 'fd00::/112' },
    'certificate of another': { certificate: Buffer.from(await broker.certificateFor('paris', csr)) },
    'certificate of a key that nobody has': { certificate: Buffer.from(await broker.certificateFor('milano', csr)) },
    'no CA': { caBundle: [] },
    'another clusterset': { clusterset: 'other' },
    'a number beyond all': { clusterIndex: 70_000 },
  }
  const site = new FileSite(t)
  const file = join(site.folder, 'site.yaml')
  writeFileSync(file, JOINING)
  for (const [name, joined] of Object.entries(bad)) {
    broker.joined = joined
    const { code, stderr } = await runCli(['join', '--site', file, '--token', broker.token()])
    t.equal(code, 1, name)
    t.match(stderr, /cannot be used|cannot be read/, stderr.split('\n')[0] ?? name)
    const made = readdirSync(site.folder, { recursive: true }).map(String)
    t.notOk(
      made.some((path) => /broker\.json|milano|self/.test(path)),
      `${name}: nothing is kept`,
    )
  }
  broker.joined = {}
  const { code, stderr } = await runCli(['join', '--site', file, '--token', broker.token()])
  t.equal(code, 0, `an honest answer: ${stderr}`)
})

async function each<T>(t: Test, values: readonly T[], send: (value: T) => (victim: Victim) => void): Promise<void> {
  for (const value of values)
    await t.test(JSON.stringify(value), async (t) => {
      await unmoved(t, send(value))
    })
}
