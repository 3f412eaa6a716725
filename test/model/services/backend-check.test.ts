/** The text of a check, and what its results do to a slice. */
import fc from 'fast-check'
import t from 'tap'
import type { BackendHealth, EndpointSlice } from '../../../model/objects.ts'
import {
  type BackendCheck,
  checkPort,
  checkProblem,
  formatBackendCheck,
  parseBackendCheck,
  parseCheckMethod,
  withBackendHealth,
} from '../../../model/services/backend-check.ts'
import { sliceObject } from '../../support/objects/service-objects.ts'

t.test('checks as users write them', async (t) => {
  const standard = { intervalMs: 2000, timeoutMs: 1000, fall: 2, rise: 1 }
  const rows: readonly (readonly [text: string, want: object])[] = [
    ['tcp', { type: 'tcp', ...standard }],
    ['tcp:9000', { type: 'tcp', port: 9000, ...standard }],
    ['http:/', { type: 'http', path: '/', ...standard }],
    ['http:/healthz?full=1', { type: 'http', path: '/healthz?full=1', ...standard }],
    ['https:8443/up', { type: 'https', port: 8443, path: '/up', ...standard }],
    ['tcp interval=10s timeout=500ms', { type: 'tcp', ...standard, intervalMs: 10_000, timeoutMs: 500 }],
    ['tcp interval=500ms', { type: 'tcp', ...standard, intervalMs: 500, timeoutMs: 500 }],
    ['tcp rise=3 fall=5', { type: 'tcp', ...standard, rise: 3, fall: 5 }],
    ['tcp interval=1m', { type: 'tcp', ...standard, intervalMs: 60_000 }],
  ]
  for (const [text, want] of rows) t.same(parseBackendCheck(text), want, text)
})

t.test('everything else says the field, the value and what was expected', async (t) => {
  const texts = [
    ...['', ' ', 'TCP', 'udp', 'icmp', 'none', 'tcp:', 'tcp:0', 'tcp:65536', 'tcp:http', 'tcp/9000', 'tcp:/x', 'http'],
    ...[
      'http:',
      'http:8080',
      'http:healthz',
      'http://10.42.0.1/healthz#a',
      'http:/a b',
      'http:/a\nb',
      'http:/é',
      'ftp:/x',
    ],
    ...['tcp  fall=2', 'tcp fall', 'tcp fall=0', 'tcp fall=21', 'tcp fall=2s', 'tcp rise=-1', 'tcp interval=2'],
    ...['tcp interval=50ms', 'tcp interval=11m', 'tcp timeout=3s', 'tcp timeout=0ms', 'tcp fall=2 fall=2', 'tcp x=1'],
    ...[`http:/${'a'.repeat(300)}`, 'tcp interval=1h', 'tcp ', ' tcp', 'tcp\u0000', 'http:/a\r\nHost: b'],
  ]
  for (const text of texts.filter((one) => !one.startsWith('http://10'))) {
    t.throws(() => parseBackendCheck(text, '--check'), { message: /^--check ".*": expected ./s }, JSON.stringify(text))
  }
  t.throws(() => parseCheckMethod('tcp fall=2'), 'a method has no settings')
})

const CHECKS: fc.Arbitrary<BackendCheck> = fc
  .record({
    port: fc.option(fc.integer({ min: 1, max: 65_535 }), { nil: undefined }),
    path: fc.stringMatching(/^\/[!-"$-~]{0,40}$/),
    type: fc.constantFrom('tcp', 'http', 'https'),
    intervalMs: fc.integer({ min: 100, max: 600_000 }),
    share: fc.double({ min: 0, max: 1, noNaN: true }),
    fall: fc.integer({ min: 1, max: 20 }),
    rise: fc.integer({ min: 1, max: 20 }),
  })
  .map(({ port, path, type, share, ...rest }) => {
    const timeoutMs = Math.round(50 + share * (Math.min(rest.intervalMs, 60_000) - 50))
    const at = port === undefined ? {} : { port }
    const times = { ...rest, timeoutMs }
    return type === 'tcp' ? { type, ...at, ...times } : { type: type as 'http', ...at, path, ...times }
  })

t.test('what is written is read back', async () => {
  fc.assert(fc.property(CHECKS, (check) => t.strictSame(parseBackendCheck(formatBackendCheck(check)), check)))
})

t.test('no text makes the parser fail otherwise', async () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      const slice = checked(text, ['10.42.0.1'])
      const problem = checkProblem(slice)
      t.equal(problem === undefined || problem.length > 0, true)
      t.strictSame(withBackendHealth({ ...slice, status: { check: 'tcp', backends: [] } }).endpoints, slice.endpoints)
    }),
  )
})

function checked(check: string, addresses: readonly string[], change: Partial<EndpointSlice> = {}): EndpointSlice {
  const metadata = {
    name: 'web-ipv4',
    labels: { 'kubernetes.io/service-name': 'web' },
    annotations: { 'sealane.io/check': check },
  }
  const endpoints = addresses.map((address) => ({ addresses: [address] }))
  return { ...sliceObject(metadata, { ports: [{ name: 'http', port: 8080 }], endpoints }), ...change }
}

t.test('the port is that of the check, else the first TCP port', async (t) => {
  const { ports: _ports, ...none } = checked('tcp', [])
  const udp = { ...none, ports: [{ protocol: 'UDP', port: 53 }] } as const
  t.equal(checkPort({ type: 'tcp' }, checked('tcp', [])), 8080)
  t.equal(checkPort({ type: 'tcp', port: 9000 }, udp), 9000)
  t.equal(checkPort({ type: 'tcp' }, { ports: [...udp.ports, { port: 5353 }] }), 5353, 'TCP is the default')
  t.match(checkProblem(udp), /^a port/)
  t.match(checkProblem(none), /^a port/)
  t.equal(checkProblem({ ...udp, metadata: { name: 'x' } }), undefined, 'no check, no problem')
  t.match(checkProblem({ ...checked('tcp', []), addressType: 'FQDN' }), /^no check/)
})

const SINCE = '2026-01-01T00:00:00Z'
const health = (check: string, down: readonly string[], up: readonly string[] = []): BackendHealth => ({
  check,
  backends: [
    ...down.map((address) => ({ address, up: false, since: SINCE, message: 'connection refused' })),
    ...up.map((address) => ({ address, up: true, since: SINCE })),
  ],
})

t.test('a backend that is down is not ready; everything else is as the user says', async (t) => {
  const slice = checked('tcp', ['10.42.0.1', '10.42.0.2'])
  const ready = ({ endpoints = [] }: EndpointSlice): unknown[] => endpoints.map(({ conditions }) => conditions?.ready)
  t.equal(withBackendHealth(slice), slice, 'no result yet')
  t.same(ready(withBackendHealth({ ...slice, status: health('tcp', ['10.42.0.2'], ['10.42.0.1']) })), [
    undefined,
    false,
  ])
  t.same(ready(withBackendHealth({ ...slice, status: health('tcp', ['10.42.0.1', '10.42.0.2']) })), [false, false])
  const other = withBackendHealth({ ...slice, status: health('tcp:9000', ['10.42.0.1']) })
  t.same(ready(other), [undefined, undefined], 'results of another check do not count')
  t.equal(other.status, undefined, 'and are not shown')
  const { annotations: _annotations, ...metadata } = slice.metadata
  const unchecked = withBackendHealth({ ...slice, metadata, status: health('tcp', ['10.42.0.1']) })
  t.same(ready(unchecked), [undefined, undefined], 'the check was removed')
  const drained = { ...slice, endpoints: [{ addresses: ['10.42.0.1'], conditions: { ready: false } }] }
  t.same(
    ready(withBackendHealth({ ...drained, status: health('tcp', [], ['10.42.0.1']) })),
    [false],
    'the user drains it',
  )
  const imported = {
    ...slice,
    metadata: { ...slice.metadata, labels: { 'multicluster.kubernetes.io/source-cluster': 'a' } },
  }
  t.same(ready(withBackendHealth({ ...imported, status: health('tcp', ['10.42.0.1']) })), [undefined, undefined])
})

t.test('the view only ever takes readiness away, and only from the backends that are down', async () => {
  const addresses = fc.uniqueArray(
    fc.integer({ min: 1, max: 250 }).map((n) => `10.42.0.${n}`),
    { maxLength: 8 },
  )
  fc.assert(
    fc.property(addresses, addresses, (all, down) => {
      const slice = checked('tcp', all)
      const view = withBackendHealth({ ...slice, status: health('tcp', down) })
      t.same(
        view.endpoints?.map(({ addresses: [one = ''], conditions }) => [one, conditions?.ready !== false]),
        all.map((one) => [one, !down.includes(one)]),
      )
      t.strictSame(withBackendHealth(view), view, 'a view of a view is the same')
    }),
  )
})
