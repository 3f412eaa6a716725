import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { type ZoneName, formatZoneName, parseDnsName } from '../../../model/dns-name.ts'

const Z = 'clusterset.local'
const long = 'a'.repeat(63)

t.test('names and what they are', async (t) => {
  const rows: [string, unknown][] = [
    [`${Z}.`, { kind: 'apex' }],
    [Z, { kind: 'apex' }],
    ['CLUSTERSET.Local.', { kind: 'apex' }],
    [`dns-version.${Z}.`, { kind: 'version' }],
    [`ns.${Z}.`, { kind: 'nameServer' }],
    [`svc.${Z}.`, { kind: 'services' }],
    [`shop.svc.${Z}.`, { kind: 'namespace', namespace: 'shop' }],
    [`Web.Shop.SVC.${Z}.`, { kind: 'service', namespace: 'shop', service: 'web' }],
    [`_tcp.web.shop.svc.${Z}.`, { kind: 'protocol', namespace: 'shop', service: 'web', protocol: 'tcp' }],
    [`east.web.shop.svc.${Z}.`, { kind: 'cluster', namespace: 'shop', service: 'web', cluster: 'east' }],
    [
      `_HTTP._TCP.web.shop.svc.${Z}.`,
      { kind: 'port', namespace: 'shop', service: 'web', protocol: 'tcp', port: 'http' },
    ],
    [
      `db-0.east.db.shop.svc.${Z}.`,
      { kind: 'endpoint', namespace: 'shop', service: 'db', cluster: 'east', hostname: 'db-0' },
    ],
    [`db-0._tcp.db.shop.svc.${Z}.`, { kind: 'unknown' }],
    [`a.b.c.d.e.svc.${Z}.`, { kind: 'unknown' }],
    [`foo.${Z}.`, { kind: 'unknown' }],
    [`web.shop.pod.${Z}.`, { kind: 'unknown' }],
    [`x.dns-version.${Z}.`, { kind: 'unknown' }],
    [`web\\046shop.svc.${Z}.`, { kind: 'namespace', namespace: 'web\\046shop' }],
    ['web.shop.svc.cluster.local.', { kind: 'notOurs' }],
    [`hello.ns.svc.${Z}.ns.svc.cluster.local.`, { kind: 'notOurs' }],
    [`x${Z}.`, { kind: 'notOurs' }],
    ['local.', { kind: 'notOurs' }],
    ['.', { kind: 'notOurs' }],
    ['7.0.42.10.in-addr.arpa.', { kind: 'notOurs' }],
    ['', { kind: 'malformed', reason: 'empty label' }],
    [`web..shop.svc.${Z}.`, { kind: 'malformed', reason: 'empty label' }],
    [`${long}a.shop.svc.${Z}.`, { kind: 'malformed', reason: 'label longer than 63 characters' }],
    [`${long}.${long}.${long}.${long}.svc.${Z}.`, { kind: 'malformed', reason: 'longer than 253 characters' }],
    [`web\\4.svc.${Z}.`, { kind: 'malformed', reason: 'a backslash must be followed by three digits' }],
  ]
  for (const [text, want] of rows) t.same(parseDnsName(text), want, JSON.stringify(text))
})

const label = fc.stringMatching(/^[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?$/)
const zoneName: fc.Arbitrary<ZoneName> = fc.oneof(
  fc.constantFrom<ZoneName>({ kind: 'apex' }, { kind: 'version' }, { kind: 'nameServer' }, { kind: 'services' }),
  fc.record({ kind: fc.constant('namespace' as const), namespace: label }),
  fc.record({ kind: fc.constant('service' as const), namespace: label, service: label }),
  fc.record({ kind: fc.constant('protocol' as const), namespace: label, service: label, protocol: label }),
  fc.record({ kind: fc.constant('cluster' as const), namespace: label, service: label, cluster: label }),
  fc.record({ kind: fc.constant('port' as const), namespace: label, service: label, protocol: label, port: label }),
  fc.record({
    kind: fc.constant('endpoint' as const),
    namespace: label,
    service: label,
    cluster: label,
    hostname: label,
  }),
)

t.test('a name is read as it was written, in any letter case', async () => {
  fc.assert(
    fc.property(zoneName, fc.infiniteStream(fc.boolean()), (name, upper) => {
      const text = formatZoneName(name).replace(/[a-z]/g, (c) => (upper.next().value ? c.toUpperCase() : c))
      assert.deepEqual(parseDnsName(text), { ...name })
    }),
    { numRuns: 500 },
  )
})

t.test('every string is some kind of name', async () => {
  const anything = fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary' }),
    fc
      .array(fc.constantFrom('.', '_', '\\', 'a', 'svc', 'clusterset', 'local', '042', '-'))
      .map((parts) => parts.join('')),
  )
  fc.assert(
    fc.property(anything, fc.constantFrom('', '.', `.${Z}`, `.svc.${Z}.`), (text, end) => {
      assert.equal(typeof parseDnsName(text + end).kind, 'string')
    }),
    { numRuns: 2000 },
  )
})
