import t from 'tap'
import fc from 'fast-check'
import type { EndpointSlice, ServiceImport } from '../../../model/objects.ts'
import {
  AFFINITY_SLOTS,
  MAX_SLOTS,
  type ServiceContext,
  clientSlots,
  planService,
  randomSlots,
  slotCounts,
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

const backends = (weights: readonly number[]) =>
  weights.map((weight, i) => ({ target: `244.1.${i >> 8}.${i & 255} . 80`, weight }))
const shares = (slots: readonly string[]): Map<string, number> => {
  const counts = new Map<string, number>()
  for (const slot of slots) counts.set(slot, (counts.get(slot) ?? 0) + 1)
  return counts
}

t.test('weights become slots', async (t) => {
  t.strictSame(slotCounts([2, 4]), [1, 2])
  t.strictSame(slotCounts([100, 50, 50]), [2, 1, 1])
  t.equal(
    slotCounts([1, 1000]).reduce((a, b) => a + b),
    MAX_SLOTS,
    'as nearly as 256 slots allow',
  )
  t.strictSame(slotCounts([1, 1000]), [1, 255])
  t.strictSame(slotCounts([0.5, 0.5]), [128, 128])
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 1000 }), { minLength: 1, maxLength: 100 }), (weights) => {
      const slots = randomSlots(backends(weights), 'worker')
      const total = weights.reduce((a, b) => a + b, 0)
      const counts = shares(slots)
      return (
        slots.length <= MAX_SLOTS &&
        backends(weights).every(({ target, weight }) => {
          const got = counts.get(target) ?? 0
          // Each backend gets one slot before the rest is shared out by weight.
          const ideal = (weight / total) * slots.length
          return got >= 1 && Math.abs(got - ideal) <= 2 + weights.length * (weight / total)
        })
      )
    }),
  )
})

t.test('more backends than slots: each node its own 256, together all of them', async (t) => {
  const many = backends(new Array<number>(600).fill(1))
  const used = new Set<string>()
  for (let i = 0; i < 12; i++) {
    const slots = randomSlots(many, `node-${i}`)
    t.equal(new Set(slots).size, MAX_SLOTS)
    t.strictSame(slots, randomSlots([...many], `node-${i}`), 'always the same ones')
    slots.forEach((slot) => used.add(slot))
  }
  t.ok(used.size > 590, `${used.size} of 600 in use by 12 nodes`)
})

t.test('clients stick', async (t) => {
  t.strictSame(clientSlots([], 'n'), [])
  fc.assert(
    fc.property(fc.integer({ min: 2, max: 30 }), fc.nat(), (count, pick) => {
      const all = backends(new Array<number>(count).fill(1))
      const gone = all[pick % count]!
      const before = clientSlots(all, 'worker')
      const after = clientSlots(
        all.filter((b) => b !== gone),
        'worker',
      )
      return (
        before.length === AFFINITY_SLOTS && before.every((target, i) => target === gone.target || after[i] === target)
      )
    }),
  )
  const weighted = shares(clientSlots(backends([1, 3]), 'worker'))
  t.ok((weighted.get('244.1.0.1 . 80') ?? 0) > (weighted.get('244.1.0.0 . 80') ?? 0), 'the heavier one has more')
  const even = shares(clientSlots(backends(new Array<number>(100).fill(1)), 'worker'))
  t.ok(even.size >= 85, `${even.size} of 100 backends have a slot`)
  const ports = (port: number): string[] =>
    clientSlots(
      [`244.1.0.1 . ${port}`, `244.1.0.2 . ${port}`].map((target) => ({ target, weight: 1 })),
      'n',
    ).map((s) => s.split(' ')[0]!)
  t.strictSame(ports(80), ports(443), 'all ports of a service lead a client to the same pod')
})
