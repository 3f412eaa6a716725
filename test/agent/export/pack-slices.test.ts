import fc from 'fast-check'
import t from 'tap'
import { MAX_ENDPOINTS_PUBLISHED, type NamedSlice, packSlices } from '../../../agent/export/plan-exports.ts'
import { isDnsSubdomain } from '../../../model/ids.ts'
import type { EndpointSliceBody } from '../../../model/records.ts'

const HTTP = [{ name: 'http', protocol: 'TCP' as const, port: 8080 }]

/**
 * Returns a slice with an endpoint 10.0.a.b for each number. A negative number stands for an endpoint that is not
 * ready.
 */
function part(name: string, numbers: readonly number[], change: Partial<EndpointSliceBody> = {}): NamedSlice {
  const endpoints = numbers.map((n) => ({
    addresses: [`10.0.${Math.floor(Math.abs(n) / 250)}.${Math.abs(n) % 250}`],
    conditions: { ready: n >= 0 },
  }))
  return {
    name,
    body: { kind: 'EndpointSlice', service: 'web', addressType: 'IPv4', ports: HTTP, endpoints, ...change },
  }
}

function show(slices: readonly NamedSlice[]): string[] {
  return slices.map(({ name, body }) => {
    const endpoints = body.endpoints.map(
      (one) => `${one.conditions?.ready === false ? '!' : ''}${one.addresses.join()}`,
    )
    return `${name} ${body.addressType} ${body.ports.map((port) => port.port).join()}: ${endpoints.join(' ')}`.trim()
  })
}

t.test('small services are one slice per family and set of ports', async (t) => {
  const rows: [name: string, parts: NamedSlice[], want: string[]][] = [
    ['nothing', [], []],
    ['one', [part('web-a', [1, 2])], ['web-a IPv4 8080: 10.0.0.1 10.0.0.2']],
    ['two are joined', [part('web-a', [2]), part('web-b', [1])], ['web-a IPv4 8080: 10.0.0.1 10.0.0.2']],
    [
      'in two slices for a moment',
      [part('web-a', [-1, 2]), part('web-b', [1])],
      ['web-a IPv4 8080: 10.0.0.1 10.0.0.2'],
    ],
    [
      'two sets of ports, as while targetPort changes',
      [part('web-a', [1]), part('web-b', [2], { ports: [{ ...HTTP[0], port: 9090 }] })],
      ['web-a IPv4 8080: 10.0.0.1', 'web-b IPv4 9090: 10.0.0.2'],
    ],
    [
      'two families',
      [part('web-a', [1]), part('web-b', [], { addressType: 'IPv6', endpoints: [{ addresses: ['fd00::1'] }] })],
      ['web-a IPv4 8080: 10.0.0.1', 'web-b IPv6 8080: fd00::1'],
    ],
    ['no pods: the placeholder stays', [part('web-a', [], { ports: [] })], ['web-a IPv4 :']],
    [
      'pods have come: the placeholder goes',
      [part('web-a', [], { ports: [] }), part('web-b', [1])],
      ['web-b IPv4 8080: 10.0.0.1'],
    ],
  ]
  for (const [name, parts, want] of rows) t.same(show(packSlices(parts)), want, name)
})

t.test('large services keep their division, in parts of at most 100', async (t) => {
  const range = (from: number, length: number): number[] => Array.from({ length }, (_, i) => from + i)
  const division = [part('web-a', range(0, 100)), part('web-b', range(100, 60))]
  const packed = packSlices(division)
  t.same(packed, division)
  packed.forEach(({ body }, i) => t.equal(body, division[i]?.body, 'the very same object'))
  const whole = packSlices([part('web', range(0, 1000))])
  t.same(
    whole.map(({ body }) => body.endpoints.length),
    Array.from({ length: 10 }, () => 100),
  )
  t.equal(new Set(whole.map(({ name }) => name)).size, 10, 'names of their own')
  t.ok(whole.every(({ name }) => isDnsSubdomain(name)))
  const flipped = packSlices([part('web', [0, ...range(1, 420), -421, ...range(422, 578)])])
  t.same(
    flipped.flatMap((slice, i) => (JSON.stringify(slice) === JSON.stringify(whole[i]) ? [] : [i])),
    [4],
    'one pod changes one part',
  )
})

t.test('no endpoint is lost, none is doubled in a small service, whatever the division', () => {
  const arbParts = fc.array(fc.uniqueArray(fc.nat({ max: 400 }), { maxLength: 250 }), { maxLength: 6 })
  fc.assert(
    fc.property(arbParts, (division) => {
      const packed = packSlices(division.map((numbers, i) => part(`web-${i}`, numbers)))
      const found = packed.flatMap(({ body }) => body.endpoints.map(({ addresses }) => addresses[0]))
      const wanted = new Set(
        division.flatMap((numbers) => part('', numbers).body.endpoints.map((one) => one.addresses[0])),
      )
      const small = wanted.size <= MAX_ENDPOINTS_PUBLISHED
      return (
        new Set(found).size === wanted.size &&
        packed.every(({ body }) => body.endpoints.length <= MAX_ENDPOINTS_PUBLISHED) &&
        (!small || division.length < 2 || (packed.length <= 1 && found.length === wanted.size)) &&
        new Set(packed.map(({ name }) => name)).size === packed.length
      )
    }),
  )
  t.pass()
  return Promise.resolve()
})
