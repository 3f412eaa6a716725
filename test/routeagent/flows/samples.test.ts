/** Lines and connect times of sampled calls, and who their ends are. What the kernel logs: test/lanes/flows.test.ts. */
import fc from 'fast-check'
import t from 'tap'
import { LiveCache } from '../../../kubeapi/driver/kind-store.ts'
import { objectKey } from '../../../kubeapi/driver/object-key.ts'
import type { LoggedPacket } from '../../../kernel/nfnetlink/packet-log.ts'
import type { EndpointSlice, KubeObject, Namespace, Pod, ServiceImport } from '../../../model/objects.ts'
import { parsePrefix } from '../../../model/values/ip.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CallParties } from '../../../routeagent/flows/call-parties.ts'
import { type CallBegun, CallSamples, MAX_FLOW_LINES } from '../../../routeagent/flows/call-samples.ts'
import { addressFamily } from '../../../routeagent/world/address-family.ts'
import { LazyInformer } from '../../../routeagent/world/read-world.ts'
import { growth, processorMs } from '../../support/growth.ts'
import { ownSlice } from '../support/own-slice.ts'
import { podObject } from '../support/pod-object.ts'
import { serviceImport, slice } from '../support/site.ts'

function cacheOf<T extends KubeObject>(objects: readonly T[]): LiveCache<T> {
  const cache = new LiveCache<T>()
  for (const object of objects) cache.replace(objectKey(object.metadata.name, object.metadata.namespace), object)
  return cache
}

const SLICES = cacheOf<EndpointSlice>([
  slice('far', 'paris', ['244.1.0.5', '244.1.0.9']),
  slice('other', 'paris', ['244.1.0.9']),
  ownSlice('far', ['10.42.1.5']),
  ownSlice('plain', ['10.42.1.5', '10.42.1.8']),
])

const PODS = cacheOf<Pod>([
  podObject('shop/web', '10.42.1.5'),
  podObject('bank/gone', '10.42.1.6', { phase: 'Succeeded' }),
  podObject('bank/far', '10.42.9.9', { spec: { nodeName: 'other' } }),
  podObject('kube/host', '10.42.1.7', { spec: { nodeName: 'worker', hostNetwork: true } }),
])

function parties(slices = SLICES, pods = PODS): CallParties {
  const made = new CallParties(
    {
      imports: cacheOf<ServiceImport>([serviceImport('far', '245.0.0.7'), serviceImport('empty', '245.0.0.8')]),
      slices,
      callers: {
        pods: new LazyInformer(() => pods),
        namespaces: new LazyInformer(() => cacheOf<Namespace>([])),
      },
    },
    'worker',
  )
  made.follow()
  made.setRanges({
    family: addressFamily(4),
    self: 'milano',
    clustersetIpRange: parsePrefix('245.0.0.0/16'),
    podCidrs: [parsePrefix('10.42.0.0/16')],
    clusters: new Map([['paris', ['244.1.0.0/16']]]),
  })
  return made
}

t.test('who the ends are', async (t) => {
  const of = parties()
  const rows: readonly [what: string, call: readonly [string, string, string], want: object][] = [
    [
      'a service of another cluster',
      ['10.42.1.5', '245.0.0.7', '244.1.0.5'],
      { way: 'out', namespace: 'shop', service: 'shop/far', cluster: 'paris' },
    ],
    [
      'its endpoint here',
      ['10.42.1.5', '245.0.0.7', '10.42.1.8'],
      { way: 'out', namespace: 'shop', service: 'shop/far', cluster: 'milano' },
    ],
    [
      'a pod of it directly',
      ['10.42.1.5', '244.1.0.5', '244.1.0.5'],
      { way: 'out', namespace: 'shop', service: 'shop/far', cluster: 'paris' },
    ],
    [
      'a pod of several services',
      ['10.42.1.5', '244.1.0.9', '244.1.0.9'],
      { way: 'out', namespace: 'shop', cluster: 'paris' },
    ],
    ['no endpoint', ['10.42.1.5', '245.0.0.8', '245.0.0.8'], { way: 'out', namespace: 'shop', service: 'shop/empty' }],
    ['a service that is gone', ['10.42.1.5', '245.0.0.9', '192.0.2.1'], { way: 'out', namespace: 'shop' }],
    [
      'a pod that has ended',
      ['10.42.1.6', '245.0.0.7', '244.1.0.5'],
      { way: 'out', service: 'shop/far', cluster: 'paris' },
    ],
    ['a pod of another node', ['10.42.9.9', '244.1.0.7', '244.1.0.7'], { way: 'out', cluster: 'paris' }],
    ['the node', ['10.42.1.7', '244.1.0.7', '244.1.0.7'], { way: 'out', cluster: 'paris' }],
    [
      'a call from there',
      ['244.1.0.5', '10.42.1.5', '10.42.1.5'],
      { way: 'in', cluster: 'paris', service: 'shop/far' },
    ],
    [
      'to a plain service',
      ['244.1.0.5', '10.42.1.8', '10.42.1.8'],
      { way: 'in', cluster: 'paris', service: 'shop/plain' },
    ],
    ['of a family without ranges', ['fd42::5', 'fd43::5', 'fd43::5'], { way: 'out' }],
  ]
  for (const [what, [client, called, server], want] of rows) t.same(of.of({ client, called, server }), want, what)
})

const SYN: LoggedPacket = {
  ...{ prefix: 'opened', source: '10.42.1.5', destination: '244.1.0.5', protocol: 'tcp' },
  ...{ sourcePort: 40_000, port: 8080, atMs: 1000 },
}
const back = (packet: LoggedPacket, change: Partial<LoggedPacket> = {}): LoggedPacket => ({
  ...packet,
  ...{ prefix: 'answered', source: packet.destination, destination: packet.source },
  ...{ sourcePort: packet.port ?? 0, port: packet.sourcePort ?? 0, atMs: 1002.5 },
  ...change,
})

function samples(of = parties()) {
  const clock = new FakeClock()
  const times: [service: string | undefined, ms: number][] = []
  const begun: CallBegun[] = []
  const made = new CallSamples(clock, of, {
    onTime: ({ service }, ms) => times.push([service, ms]),
    onBegun: (call) => begun.push(call),
  })
  return { clock, times, begun, made }
}

t.test('outcomes', async (t) => {
  const { made, times, begun, clock } = samples()
  const udp = { ...SYN, protocol: 'udp' }
  made.take(SYN)
  made.take(back(SYN))
  made.take(back(SYN))
  made.take({ ...SYN, sourcePort: 40_001 })
  made.take(back({ ...SYN, sourcePort: 40_001 }, { prefix: 'refused' }))
  made.take(udp)
  made.take(back(udp))
  made.take({ ...udp, sourcePort: 40_002 })
  const { prefix: _, atMs: __, ...about } = { ...udp, sourcePort: 40_002 }
  made.take({ prefix: 'refused', source: '244.1.0.1', destination: '10.42.1.5', protocol: 'icmp', atMs: 1003, about })
  made.take({ ...SYN, destination: '245.0.0.8' })
  made.take(back(SYN, { prefix: 'of another program' }))
  made.take({ prefix: 'opened', source: '10.42.1.5', destination: '244.1.0.5', protocol: 'tcp' })
  made.take({ ...SYN, sourcePort: 40_003 })
  made.expire()
  t.same(times, [['shop/far', 2.5]])
  t.same(
    made.lines.map(({ protocol, outcome, reason, ms }) => [protocol, outcome, reason, ms]),
    [
      ['tcp', 'answered', undefined, 2.5],
      ['tcp', 'refused', 'CallRefused', 2.5],
      ['udp', 'answered', undefined, 2.5],
      ['udp', 'refused', 'CallRefused', 3],
      ['tcp', 'refused', 'CallWithoutEndpoint', undefined],
    ],
  )
  t.match(made.lines[0], {
    number: 1,
    at: '1970-01-01T00:00:01.000Z',
    from: { address: '10.42.1.5', namespace: 'shop', pod: 'web' },
    to: { address: '244.1.0.5', service: 'shop/far', cluster: 'paris' },
    port: 8080,
  })
  await clock.advance(10_000)
  made.expire()
  t.match(made.lines.at(-1), { outcome: 'unanswered', reason: 'CallUnanswered', number: 6 })
  made.take({ ...SYN, sourcePort: 40_009 })
  made.take(back({ ...SYN, sourcePort: 40_009 }, { prefix: 'followed' }))
  t.match(made.lines.at(-1), { outcome: 'answered', reason: undefined })
  t.same(
    begun.map(({ protocol, outcome, sourcePort }) => `${protocol} ${sourcePort} ${outcome}`),
    [
      'tcp 40000 answered',
      'tcp 40001 refused',
      'udp 40000 answered',
      'udp 40002 refused',
      'tcp 40000 refused',
      'tcp 40003 unanswered',
      'tcp 40009 followed',
    ],
  )
  const [followed] = begun.slice(-1)
  if (followed !== undefined) made.timedOut(followed)
  t.match(made.lines.at(-1), { outcome: 'timed-out', reason: 'CallTimedOut', from: { pod: 'web' }, port: 8080 })
})

t.test('the names of a call are those of its begin', async (t) => {
  const slices = cacheOf<EndpointSlice>([slice('far', 'paris', ['244.1.0.5'])])
  const pods = cacheOf<Pod>([podObject('shop/web', '10.42.1.5')])
  const of = parties(slices, pods)
  const { made, begun, times } = samples(of)
  const early = { ...SYN, source: '10.42.1.6' }
  made.take(SYN)
  made.take(early)
  const { metadata } = slice('far', 'paris', [])
  slices.replace(objectKey(metadata.name, metadata.namespace), undefined)
  pods.replace(objectKey('web', 'shop'), undefined)
  pods.replace(objectKey('other', 'bank'), podObject('bank/other', '10.42.1.5'))
  pods.replace(objectKey('new', 'bank'), podObject('bank/new', '10.42.1.6'))
  made.take(back(SYN, { prefix: 'followed' }))
  made.take(back(early, { prefix: 'followed' }))
  t.same(times, Array(2).fill(['shop/far', 2.5]))
  for (const call of begun) made.timedOut({ ...call, names: of.namesOf(call.call, call.names) })
  const to = { address: '244.1.0.5', service: 'shop/far', cluster: 'paris' }
  const [web, late] = [
    { from: { address: '10.42.1.5', namespace: 'shop', pod: 'web' }, to },
    { from: { address: '10.42.1.6', namespace: 'bank', pod: 'new' }, to },
  ]
  t.match(made.lines, [web, late, web, late], 'only what was not known then is filled in')
  t.same(
    begun.map(({ call, names }) => of.namesOf(call, names).parties),
    ['shop', 'bank'].map((namespace) => ({ way: 'out', namespace, service: 'shop/far', cluster: 'paris' })),
  )
})

t.test('bounds', async (t) => {
  const { made, clock } = samples()
  for (let i = 0; i < 5000; i += 1) made.take({ ...SYN, sourcePort: i + 1 })
  await clock.advance(10_000)
  made.expire()
  t.equal(made.lines.length, MAX_FLOW_LINES)
  t.equal(made.lines.at(-1)?.number, 600, 'what has no room is not awaited')
})

t.test('services that change', async (t) => {
  const slices = cacheOf<EndpointSlice>([slice('far', 'paris', ['244.1.0.5']), slice('other', 'paris', ['244.1.0.6'])])
  let listed = 0
  const list = slices.list.bind(slices)
  slices.list = () => {
    listed += 1
    return list()
  }
  const of = parties(slices)
  const serviceAt = (address: string) => of.of({ client: '10.42.1.5', called: address, server: address }).service
  t.equal(serviceAt('244.1.0.5'), 'shop/far')
  const after = listed
  const put = (object: EndpointSlice) =>
    slices.replace(objectKey(object.metadata.name, object.metadata.namespace), object)
  for (let i = 7; i < 100; i += 1) {
    put(slice('far', 'paris', [`244.1.0.${i}`]))
    t.equal(serviceAt(`244.1.0.${i}`), 'shop/far')
    t.equal(serviceAt(`244.1.0.${i - 1}`), i === 7 ? 'shop/other' : undefined)
  }
  put(slice('far', 'paris', ['244.1.0.6']))
  t.equal(serviceAt('244.1.0.6'), undefined, 'several services')
  const { metadata } = slice('far', 'paris', [])
  slices.replace(objectKey(metadata.name, metadata.namespace), undefined)
  t.equal(serviceAt('244.1.0.6'), 'shop/other')
  t.equal(listed, after, 'a change reads one slice, not all')
})

const CLIENTS = Array.from({ length: 5000 }, (_, i) => `100.${i % 64}.${i >> 6}.9`)

function ranged(prefixes: readonly (readonly [id: string, prefix: string])[]): CallParties {
  const of = parties()
  of.setRanges({
    family: addressFamily(4),
    self: 'milano',
    clustersetIpRange: parsePrefix('245.0.0.0/16'),
    podCidrs: [parsePrefix('10.42.0.0/16')],
    clusters: new Map(prefixes.map(([id, prefix]) => [id, [prefix]])),
  })
  return of
}

t.test('whose an address is', async () => {
  const octet = fc.integer({ min: 0, max: 255 })
  // 10.0.0.0/8 has the server.
  const prefix = fc.record({ a: octet.filter((n) => n !== 10), b: octet, length: fc.constantFrom(8, 16) })
  fc.assert(
    fc.property(fc.array(prefix), octet, octet, (all, a, b) => {
      const texts = all.map(({ a, b, length }) => `${a}.${length === 8 ? 0 : b}.0.0/${length}`)
      const of = ranged(texts.map((text) => [text, text]))
      const found = of.of({ client: `${a}.${b}.1.1`, called: '10.42.1.8', server: '10.42.1.8' }).cluster
      const [wide, narrow] = [`${a}.0.0.0/8`, `${a}.${b}.0.0/16`].map((text) =>
        texts.includes(text) ? text : undefined,
      )
      return found === (wide ?? narrow ?? 'milano')
    }),
  )
})

t.test('the time to find it grows less than the number of clusters', async (t) => {
  const times = await growth(1200, (size) => {
    const of = ranged(Array.from({ length: size }, (_, i) => [`c${i}`, `${101 + (i >> 8)}.${i & 255}.0.0/16`]))
    return processorMs(() => {
      for (const client of CLIENTS) of.of({ client, called: '10.42.1.8', server: '10.42.1.8' })
    })
  })
  t.ok(times < 2, `four times as many take ${times.toFixed(1)} times as long`)
})
