import t from 'tap'
import fc from 'fast-check'
import type { EndpointSlice, ImportPort, ServiceImport, SliceEndpoint } from '../../../model/objects.ts'
import {
  AFFINITY_SLOTS,
  MAX_SERVICE_SLOTS,
  type ServiceContext,
  clientSlots,
  mostSlots,
  planService,
  randomSlots,
  wholeShares,
} from '../../../routeagent/balance/plan-service.ts'
import { SERVICE_CONTEXT, serviceImport, slice } from '../support/site.ts'

const plan = (
  service: ServiceImport,
  slices: readonly EndpointSlice[],
  context: Partial<ServiceContext> = {},
): Record<string, string> =>
  Object.fromEntries(
    [...planService(service, slices, { ...SERVICE_CONTEXT, ...context })].map(([key, p]) => [
      key,
      `${p.pick}: ${p.slots.join(', ')}`,
    ]),
  )

t.test('which backends a port leads to', async (t) => {
  const web = serviceImport('web', '245.0.0.7')
  const two = serviceImport('web', '245.0.0.7', {
    ports: [
      { name: 'http', protocol: 'TCP', port: 80 },
      { name: 'dns', protocol: 'UDP', port: 53 },
    ],
  })
  const http = { name: 'http', protocol: 'TCP', port: 8080 } as const
  const rows: { say: string; got: Record<string, string>; want: Record<string, string> }[] = [
    {
      say: 'ready endpoints of all clusters',
      got: plan(web, [slice('web', 'paris', ['244.1.0.5', '244.1.0.6!']), slice('web', 'milano', ['10.42.0.5'])]),
      want: { '245.0.0.7 . tcp . 80': 'random: 10.42.0.5 . 8080, 244.1.0.5 . 8080' },
    },
    {
      say: 'none ready: those that serve while they terminate',
      got: plan(web, [slice('web', 'paris', ['244.1.0.5~', '244.1.0.6!'])]),
      want: { '245.0.0.7 . tcp . 80': 'random: 244.1.0.5 . 8080' },
    },
    {
      say: 'one ready: the terminating one no longer',
      got: plan(web, [slice('web', 'paris', ['244.1.0.5~']), slice('web', 'milano', ['10.42.0.5'])]),
      want: { '245.0.0.7 . tcp . 80': 'random: 10.42.0.5 . 8080' },
    },
    { say: 'no endpoint at all: refused', got: plan(web, []), want: { '245.0.0.7 . tcp . 80': 'random: ' } },
    {
      say: 'a port goes only to the clusters that expose it, by name and protocol',
      got: plan(two, [
        slice('web', 'paris', ['244.1.0.5'], [http]),
        slice('web', 'tokyo', ['244.2.0.5'], [http, { name: 'dns', protocol: 'UDP', port: 5353 }]),
      ]),
      want: {
        '245.0.0.7 . tcp . 80': 'random: 244.1.0.5 . 8080, 244.2.0.5 . 8080',
        '245.0.0.7 . udp . 53': 'random: 244.2.0.5 . 5353',
      },
    },
    {
      say: 'an unnamed port matches an unnamed port; TCP is the default',
      got: plan(serviceImport('web', '245.0.0.7', { ports: [{ protocol: 'TCP', port: 9 }] }), [
        slice('web', 'paris', ['244.1.0.5'], [{ port: 90 }]),
      ]),
      want: { '245.0.0.7 . tcp . 9': 'random: 244.1.0.5 . 90' },
    },
    {
      say: 'a dead cluster is left out',
      got: plan(web, [slice('web', 'paris', ['244.1.0.5']), slice('web', 'tokyo', ['244.2.0.5'])], {
        reachable: new Set(['milano', 'tokyo']),
      }),
      want: { '245.0.0.7 . tcp . 80': 'random: 244.2.0.5 . 8080' },
    },
    {
      say: 'headless: nothing to balance',
      got: plan(serviceImport('db', '245.0.0.7', { type: 'Headless' }), []),
      want: {},
    },
    { say: 'no address yet', got: plan(serviceImport('web', '245.0.0.7', { ips: [] }), []), want: {} },
    { say: 'an address that is not ours to give', got: plan(serviceImport('web', '10.0.0.1'), []), want: {} },
    {
      say: 'what cannot be an endpoint is not believed',
      got: plan(web, [
        slice('web', 'paris', [
          '127.0.0.1',
          '0.0.0.0',
          '224.0.0.1',
          '169.254.1.1',
          'fd00::1',
          'x',
          '1.2.3.4; flush',
          '244.1.0.5',
        ]),
      ]),
      want: { '245.0.0.7 . tcp . 80': 'random: 244.1.0.5 . 8080' },
    },
    {
      say: 'ports out of range',
      got: plan(serviceImport('web', '245.0.0.7', { ports: [{ protocol: 'TCP', port: 70000 }] }), []),
      want: {},
    },
    {
      say: 'an endpoint named twice counts once',
      got: plan(web, [slice('web', 'paris', ['244.1.0.5', '244.1.0.5'])]),
      want: { '245.0.0.7 . tcp . 80': 'random: 244.1.0.5 . 8080' },
    },
  ]
  for (const { say, got, want } of rows) t.strictSame(got, want, say)
})

const backends = (count: number): string[] => Array.from({ length: count }, (_, i) => `244.1.${i >> 8}.${i & 255} . 80`)
const counted = (slots: readonly string[]): Map<string, number> => {
  const counts = new Map<string, number>()
  for (const slot of slots) counts.set(slot, (counts.get(slot) ?? 0) + 1)
  return counts
}

t.test('shares become whole numbers', async (t) => {
  const rows: [weights: number[], steps: number, want: number[]][] = [
    [[2, 4], 1000, [1, 2]],
    [[5000, 5000], 1000, [1, 1]],
    [[100, 1000, 8900], 1000, [10, 100, 890]],
    [[1, 9999], 1000, [1, 999]],
    [[1, 9999], 10, [1, 9]],
    [[3334, 3333, 3333], 1000, [334, 333, 333]],
    [[7], 1000, [1]],
  ]
  for (const [weights, steps, want] of rows) t.strictSame(wholeShares(weights, steps), want, weights.join(':'))
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 10_000 }), { minLength: 1, maxLength: 20 }), (weights) => {
      const shares = wholeShares(weights, 1000)
      const sum = shares.reduce((a, b) => a + b)
      const total = weights.reduce((a, b) => a + b)
      const isNear = shares.every((n, i) => n >= 1 && Math.abs(n / sum - (weights[i] ?? 0) / total) < 0.01)
      const small = weights.every((w, i) => w / total > 0.05 || Math.abs((shares[i] ?? 0) / sum - w / total) < 0.002)
      return (sum === 1000 || sum <= 10) && isNear && small
    }),
  )
})

t.test('clusters have shares', async (t) => {
  const web = serviceImport('web', '245.0.0.7')
  const parts = (
    slices: readonly EndpointSlice[],
    clusterShares: Record<string, number>,
    spec: Partial<ServiceImport['spec']> = {},
  ): string => {
    const service = { ...web, spec: { ...web.spec, ...spec } }
    const plans = planService(service, slices, SERVICE_CONTEXT, {
      clusterShares: new Map(Object.entries(clusterShares)),
    })
    const { slots = [], shares, dropped } = plans.get('245.0.0.7 . tcp . 80') ?? {}
    if (slots.length === 0) return dropped === true ? 'dropped' : 'refused'
    const hosts = slots.map((target) => target.split(' ')[0])
    let at = 0
    const text = (shares ?? [{ part: 0, size: slots.length, share: 1 }]).map(
      ({ part, size, share }) => `${part}: ${share} of ${hosts.slice(at, (at += size)).join()}`,
    )
    return text.join('; ')
  }
  const milano = (...addresses: string[]): EndpointSlice => slice('web', 'milano', addresses)
  const paris = (...addresses: string[]): EndpointSlice => slice('web', 'paris', addresses)
  const tokyo = slice('web', 'tokyo', ['244.2.0.5', '244.2.0.6'])
  const all = [milano('10.42.0.5'), paris('244.1.0.5'), tokyo]
  const everywhere = { milano: 100, paris: 1000, tokyo: 8900 }
  const rows: [say: string, got: string, want: string][] = [
    [
      'each its share',
      parts(all, everywhere),
      '0: 10 of 10.42.0.5; 1: 100 of 244.1.0.5; 2: 890 of 244.2.0.5,244.2.0.6',
    ],
    [
      'as the endpoints are: no draw',
      parts(all, { milano: 2500, paris: 2500, tokyo: 5000 }),
      '0: 1 of 10.42.0.5,244.1.0.5,244.2.0.5,244.2.0.6',
    ],
    ['share 0 gets nothing', parts(all, { milano: 0, paris: 0, tokyo: 1 }), '0: 1 of 244.2.0.5,244.2.0.6'],
    ['nor does one without a share', parts(all, { paris: 10_000 }), '0: 1 of 244.1.0.5'],
    [
      'a part keeps its number while its neighbour has no endpoint',
      parts([milano('10.42.0.5'), paris('244.1.0.5!'), tokyo], everywhere),
      '0: 11 of 10.42.0.5; 2: 989 of 244.2.0.5,244.2.0.6',
    ],
    [
      'and while its neighbour has share 0',
      parts(all, { milano: 1000, paris: 0, tokyo: 9000 }),
      '0: 1 of 10.42.0.5; 2: 9 of 244.2.0.5,244.2.0.6',
    ],
    [
      'ready before terminating ones, whatever the shares',
      parts([milano('10.42.0.5'), paris('244.1.0.5~')], { milano: 1, paris: 9999 }),
      '0: 1 of 10.42.0.5',
    ],
    [
      'only those with share 0 have endpoints: these',
      parts([milano('10.42.0.5'), tokyo], { paris: 10_000 }),
      '0: 1 of 10.42.0.5,244.2.0.5,244.2.0.6',
    ],
    [
      'ready ones with share 0 do not come before terminating ones with a share: egress rules shut their cluster',
      parts([milano('10.42.0.5~'), paris('244.1.0.5')], { milano: 10_000, paris: 0 }),
      '0: 1 of 10.42.0.5',
    ],
    ['all are 0: refused', parts(all, { milano: 0, paris: 0, tokyo: 0 }), 'refused'],
    [
      'near ones within each cluster',
      parts(
        [milano('10.42.0.5 in b', '10.42.0.6 in a'), paris('244.1.0.5 in b', '244.1.0.6 in c')],
        { milano: 5000, paris: 5000 },
        { trafficDistribution: 'PreferClose' },
      ),
      '0: 1 of 10.42.0.6; 1: 1 of 244.1.0.5,244.1.0.6',
    ],
    [
      'this node alone',
      parts(
        [milano('10.42.0.5 on worker'), paris('244.1.0.5 on worker')],
        { milano: 5000, paris: 5000 },
        { internalTrafficPolicy: 'Local' },
      ),
      '0: 1 of 10.42.0.5',
    ],
  ]
  for (const [say, got, want] of rows) t.equal(got, want, say)
})

t.test('open connections to clusters that are drained now', async (t) => {
  const web = serviceImport('web', '245.0.0.7')
  const milano = (...addresses: string[]): EndpointSlice => slice('web', 'milano', addresses)
  const paris = (...addresses: string[]): EndpointSlice => slice('web', 'paris', addresses)
  type Case = readonly [
    say: string,
    slices: readonly EndpointSlice[],
    shares: Record<string, number>,
    ended: readonly string[],
    want: string | undefined,
  ]
  const away = { milano: 10_000, paris: 0 }
  const rows: readonly Case[] = [
    ['none is drained now', [milano('10.42.0.5'), paris('244.1.0.5')], away, [], undefined],
    ['all of its endpoints', [milano('10.42.0.5'), paris('244.1.0.6', '244.1.0.5')], away, ['paris'], '5,6'],
    ['ready or not', [milano('10.42.0.5'), paris('244.1.0.5!', '244.1.0.6~')], away, ['paris'], '5,6'],
    [
      'a cluster that this node does not reach',
      [milano('10.42.0.5'), slice('web', 'oslo', ['244.9.0.5'])],
      { milano: 10_000 },
      ['oslo'],
      '5',
    ],
    [
      'the one that has a share has no endpoint: it still serves',
      [milano(), paris('244.1.0.5', '244.1.0.6')],
      away,
      ['paris'],
      undefined,
    ],
    [
      'also where zones choose among its endpoints',
      [milano(), paris('244.1.0.5 in a', '244.1.0.6 in b')],
      away,
      ['paris'],
      undefined,
    ],
    ['calls are refused: nothing takes its place', [paris('244.1.0.5')], { paris: 0 }, ['paris'], undefined],
    ['the other one has no endpoint', [milano(), paris('244.1.0.5!')], away, ['paris'], undefined],
    ['it has gone', [milano('10.42.0.5')], away, ['paris'], undefined],
  ]
  const context = { ...SERVICE_CONTEXT, reachable: new Set(['milano', 'paris']) }
  for (const [say, slices, shares, ended, want] of rows) {
    const service = { ...web, spec: { ...web.spec, trafficDistribution: 'PreferClose' } }
    const traffic = { clusterShares: new Map(Object.entries(shares)), ended: new Set(ended) }
    const plan = planService(service, slices, context, traffic).get('245.0.0.7 . tcp . 80')
    t.equal(plan?.ended?.map((target) => target.replace(/^.*\.(\d+) \. 8080$/, '$1')).join(), want, say)
  }
  const local = { ...web, spec: { ...web.spec, internalTrafficPolicy: 'Local' } }
  const elsewhere = [milano('10.42.0.5 on other'), paris('244.1.0.5')]
  const traffic = { clusterShares: new Map(Object.entries(away)), ended: new Set(['paris']) }
  const [plan] = planService(local, elsewhere, context, traffic).values()
  t.match(plan, { dropped: true, ended: undefined }, 'no endpoint that this node may use takes its place')
})

const [MANY_SLICES, MANY_ENDPOINTS] = [20, 100]

t.test('a hostile member with many ports and endpoints that drains them now makes bounded work', (t) => {
  const web = serviceImport('web', '245.0.0.7')
  const ports = Array.from({ length: 4000 }, (_, i) => ({ name: `p${i}`, protocol: 'TCP' as const, port: i + 1 }))
  let read = 0
  const counted = (addresses: readonly string[]): SliceEndpoint => ({
    get addresses() {
      read += 1
      return addresses
    },
  })
  const address = (i: number, j: number): string => `244.1.${i}.${j % 250}`
  type Case = readonly [say: string, ports: (slice: number) => typeof ports, address: (i: number, j: number) => string]
  const rows: readonly Case[] = [
    ['alike in all slices', () => ports, address],
    ['all slices different', (i) => [...ports.slice(0, 1000), { name: `own${i}`, protocol: 'TCP', port: 1 }], address],
    ['no usable address', () => ports, () => 'none'],
  ]
  for (const [say, portsOf, addressOf] of rows) {
    const endpoints = (i: number): SliceEndpoint[] =>
      Array.from({ length: MANY_ENDPOINTS }, (_, j) => counted([addressOf(i, j)]))
    const many = Array.from({ length: MANY_SLICES }, (_, i) => ({
      ...slice('web', 'paris', [], portsOf(i)),
      endpoints: endpoints(i),
    }))
    const slices = [slice('web', 'milano', ['10.42.0.5'], ports), ...many]
    const traffic = { clusterShares: new Map([['milano', 10_000]]), ended: new Set(['paris']) }
    read = 0
    const wide = planService({ ...web, spec: { ...web.spec, ports } }, slices, SERVICE_CONTEXT, traffic)
    t.ok(read <= 3 * MANY_SLICES * MANY_ENDPOINTS, `${say}: ${read} reads of endpoints`)
    const all = [...wide.values()].reduce((sum, { ended = [] }) => sum + ended.length, 0)
    t.ok(all <= MAX_SERVICE_SLOTS && all > 0 === (addressOf === address), `${say}: ${all} elements`)
  }
  t.end()
})

t.test('clusters together have no more slots for clients than the service has', async (t) => {
  for (const ports of [1, 400, 1000, 3000]) {
    const service = serviceImport('web', '245.0.0.7', { ports: manyPorts(ports), sessionAffinity: 'ClientIP' })
    const ids = ['milano', 'paris', 'rome', 'tokyo']
    const slices = ids.map((id, i) => slice('web', id, [`244.${i}.0.5`, `244.${i}.0.6`], manyPorts(ports, 20_000)))
    const clusterShares = new Map(ids.map((id, i) => [id, 100 * (i + 1)]))
    const plans = [...planService(service, slices, SERVICE_CONTEXT, { clusterShares }).values()]
    const sum = plans.reduce((all, { slots }) => all + slots.length, 0)
    t.ok(sum <= MAX_SERVICE_SLOTS, `${ports} ports: ${sum} slots`)
    t.ok(
      plans.every(({ shares = [] }) => shares.length === 4 && shares.every(({ size }) => size > 0)),
      'each cluster has some',
    )
  }
})

t.test('all endpoints are used, and if there are more than slots, each node uses its own', async (t) => {
  t.equal(randomSlots(backends(5000), 'worker').length, 5000)
  const web = planService(
    serviceImport('web', '245.0.0.7'),
    [slice('web', 'paris', manyAddresses(5000))],
    SERVICE_CONTEXT,
  )
  t.equal(new Set(web.get('245.0.0.7 . tcp . 80')?.slots).size, 5000, 'a service of 5,000 endpoints')
  const many = backends(600)
  const used = new Set<string>()
  for (let i = 0; i < 12; i++) {
    const slots = randomSlots(many, `node-${i}`, 256)
    t.equal(new Set(slots).size, 256)
    t.strictSame(slots, randomSlots([...many], `node-${i}`, 256), 'always the same ones')
    slots.forEach((slot) => used.add(slot))
  }
  t.ok(used.size > 590, `${used.size} of 600 in use by 12 nodes`)
})

t.test('how long a client keeps its backend', async (t) => {
  const seconds = (spec: Partial<ServiceImport['spec']>): number | undefined =>
    planService(serviceImport('web', '245.0.0.7', spec), [], SERVICE_CONTEXT).get('245.0.0.7 . tcp . 80')
      ?.affinitySeconds
  const after = (timeoutSeconds: number): Partial<ServiceImport['spec']> => ({
    sessionAffinity: 'ClientIP',
    sessionAffinityConfig: { clientIP: { timeoutSeconds } },
  })
  t.equal(seconds({}), undefined)
  t.equal(seconds({ sessionAffinity: 'ClientIP' }), 10_800)
  t.equal(seconds(after(7)), 7)
  for (const odd of [0, -1, 86_401, 1.5, Number.NaN]) t.equal(seconds(after(odd)), 10_800, String(odd))
})

t.test('clients that are not remembered move as little as can be', async (t) => {
  t.strictSame(clientSlots([], 'n'), [])
  fc.assert(
    fc.property(fc.integer({ min: 2, max: 30 }), fc.nat(), (count, pick) => {
      const all = backends(count)
      const gone = all[pick % count]!
      const before = clientSlots(all, 'worker')
      const after = clientSlots(
        all.filter((b) => b !== gone),
        'worker',
      )
      const others = before.filter((target) => target !== gone)
      const moved = before.filter((target, i) => target !== gone && after[i] !== target)
      const isServed = counted(before).size === count && counted(after).size === count - 1
      return before.length === AFFINITY_SLOTS && isServed && moved.length <= Math.max(0, others.length * 0.2)
    }),
  )
  const even = counted(clientSlots(backends(100), 'worker'))
  t.equal(even.size, 100, 'each of 100 backends has a slot')
  t.equal(counted(clientSlots(backends(5000), 'worker')).size, 5000, 'many backends have one slot each')
  const ports = (port: number): string[] =>
    clientSlots([`244.1.0.1 . ${port}`, `244.1.0.2 . ${port}`], 'n').map((s) => s.split(' ')[0]!)
  t.strictSame(ports(80), ports(443), 'all ports of a service lead a client to the same pod')
})

/** A port of an import, and of a slice: named after its number. */
const manyPorts = (count: number, offset = 0): { name: string; protocol: 'UDP'; port: number }[] =>
  Array.from({ length: count }, (_, i) => ({ name: `p${i}`, protocol: 'UDP', port: i + 1 + offset }))
const manyAddresses = (count: number): string[] => Array.from({ length: count }, (_, i) => `244.1.${i >> 8}.${i & 255}`)

t.test('many ports: each is served, and the table of a node stays bounded', async (t) => {
  const nodes = ['a', 'b', 'c', 'd', 'e', 'f']
  const rows: [ports: number, endpoints: number, slots: number][] = [
    [256, 300, 256],
    [2000, 300, 32],
    [20_000, 1000, 3],
  ]
  for (const [ports, endpoints, slots] of rows) {
    t.equal(mostSlots(ports), slots)
    for (const sessionAffinity of ['None', 'ClientIP'] as const) {
      const service = serviceImport('web', '245.0.0.7', { ports: manyPorts(ports), sessionAffinity })
      const slices = [slice('web', 'paris', manyAddresses(endpoints), manyPorts(ports, 20_000))]
      const used = new Set<string>()
      for (const node of ports > 2000 ? nodes.slice(0, 1) : nodes) {
        const plans = planService(service, slices, { ...SERVICE_CONTEXT, node })
        t.equal(plans.size, ports)
        const sum = [...plans.values()].reduce((all, one) => all + one.slots.length, 0)
        t.ok(sum <= MAX_SERVICE_SLOTS && sum > MAX_SERVICE_SLOTS / 2, `${ports} ports: ${sum} slots`)
        const of = (port: number): string[] =>
          (plans.get(`245.0.0.7 . udp . ${port}`)?.slots ?? []).map((target) => {
            const [address = '', , targetPort] = target.split(' ')
            t.equal(Number(targetPort), port + 20_000, 'its own target port')
            return address
          })
        t.strictSame(of(1), of(ports), 'a client finds the same pod behind each port')
        for (const address of of(1)) used.add(address)
      }
      if (ports === 2000 && sessionAffinity === 'None') t.ok(used.size > 32, 'nodes use backends of their own')
    }
  }
})

t.test('ports of slices with different port lists: as if each port were planned alone', async () => {
  const names = ['a', 'b', 'c']
  const somePorts = fc.uniqueArray(
    fc.record({ name: fc.constantFrom(...names), port: fc.integer({ min: 1, max: 4 }) }),
    { selector: ({ name }) => name, maxLength: 3 },
  )
  const someSlices = fc.array(
    fc.record({
      ports: somePorts,
      addresses: fc.uniqueArray(fc.integer({ min: 1, max: 6 }), { maxLength: 4 }),
      ends: fc.constantFrom('', '!', '~'),
    }),
    { maxLength: 5 },
  )
  fc.assert(
    fc.property(someSlices, (made) => {
      const slices = made.map(({ ports, addresses, ends }, i) => {
        const endpoints = addresses.map((n) => `244.1.0.${n}${ends}`)
        const one = slice(
          'web',
          'paris',
          endpoints,
          ports.map((port) => ({ ...port, protocol: 'TCP' as const })),
        )
        return { ...one, metadata: { ...one.metadata, name: `web-${i}` } }
      })
      const ports = names.map((name, i) => ({ name, protocol: 'TCP' as const, port: 80 + i }))
      const together = planService(serviceImport('web', '245.0.0.7', { ports }), slices, SERVICE_CONTEXT)
      return ports.every((port) => {
        const key = `245.0.0.7 . tcp . ${port.port}`
        const with_ = made.flatMap(({ ports: own, addresses, ends }) => {
          const target = own.find(({ name }) => name === port.name)?.port
          return target === undefined ? [] : addresses.map((n) => ({ target: `244.1.0.${n} . ${target}`, ends }))
        })
        const of = (ends: string): string[] => with_.filter((one) => one.ends === ends).map(({ target }) => target)
        const expected = of('').length > 0 ? of('') : of('~')
        const got = together.get(key)?.slots ?? []
        return got.length === new Set(got).size && [...got].sort().join() === [...new Set(expected)].sort().join()
      })
    }),
  )
})

t.test('a hostile member whose ports all have endpoints of other slices costs bounded work', async (t) => {
  const ports = manyPorts(2000)
  // Each port is in another selection of twelve slices, with 1,000 endpoints each.
  const slices = Array.from({ length: 12 }, (_, bit) => {
    const own = ports.filter((_port, i) => ((i + 1) >> bit) & 1)
    const made = slice('web', 'paris', manyAddresses(1000), own)
    return { ...made, metadata: { ...made.metadata, name: `web-${bit}` } }
  })
  const started = performance.now()
  const plans = planService(serviceImport('web', '245.0.0.7', { ports }), slices, SERVICE_CONTEXT)
  t.ok(performance.now() - started < 20_000, `${Math.round(performance.now() - started)} ms`)
  t.equal([...plans.values()].filter(({ slots }) => slots.length > 0).length, 2000, 'and each port is served')
})

t.test('ports with shares of their own follow these, and are refused where no cluster has one', async (t) => {
  const port = (name: string, number: number): ImportPort => ({ name, protocol: 'TCP', port: number })
  const ports = ['http', 'grpc', 'admin'].map((name, i) => port(name, 80 + i))
  const slices = ['lyon', 'paris', 'roma'].map((id, i) => slice('web', id, [`244.${i + 1}.0.5`], ports))
  const shares = (given: Readonly<Record<string, number>>) =>
    new Map(['lyon', 'paris', 'roma'].map((id) => [id, given[id] ?? 0]))
  const traffic = {
    clusterShares: shares({ lyon: 10_000 }),
    portShares: new Map([
      ['TCP/grpc', shares({ paris: 10_000 })],
      ['TCP/admin', shares({})],
    ]),
  }
  const plans = planService(serviceImport('web', '245.0.0.7', { ports }), slices, SERVICE_CONTEXT, traffic)
  t.same(
    [...plans.values()].map(({ slots, dropped }) => [...slots, ...(dropped === true ? ['dropped'] : [])].join()),
    ['244.1.0.5 . 80', '244.2.0.5 . 81', ''],
  )
})
