import fc from 'fast-check'
import t from 'tap'
import { type AdmissionContext, admitRecord } from '../../../broker/records/admission.ts'
import { admitFacts } from '../../../broker/records/admission-facts.ts'
import { containsAddress, formatAddress, parseAddress, parsePrefix } from '../../../model/values/ip.ts'
import type { EndpointSpec } from '../../../model/objects.ts'
import type { EndpointSliceBody, MemberRecord, PublishedEndpoint, ServiceExportBody } from '../../../model/records.ts'
import type { ClusterFacts } from '../../../protocol/broker-api.ts'

const KEY = Buffer.alloc(32, 7).toString('base64')
const OTHER_KEY = Buffer.alloc(32, 8).toString('base64')
const LONG = 'x'.repeat(63)

const context: AdmissionContext = {
  cluster: 'milano',
  podCIDRs: [parsePrefix('10.42.0.0/16')],
  allowedNamespaces: ['kube-public'],
  ranges: { globalRange: '244.0.0.0/8', clustersetIpRange: '245.0.0.0/16' },
  publicKeyOwner: (key) => (key === OTHER_KEY ? 'paris' : undefined),
}

function anExport(change: Partial<ServiceExportBody> = {}, namespace = 'shop', name = 'web'): MemberRecord {
  const body: ServiceExportBody = {
    kind: 'ServiceExport',
    uid: 'u1',
    type: 'ClusterSetIP',
    ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
    sessionAffinity: 'None',
    ipFamilies: ['IPv4'],
    exportedLabels: {},
    exportedAnnotations: {},
    ...change,
  }
  return { namespace, name, body }
}

function aSlice(
  endpoint: Partial<PublishedEndpoint> = {},
  change: Partial<EndpointSliceBody> = {},
  namespace = 'shop',
): MemberRecord {
  const body: EndpointSliceBody = {
    kind: 'EndpointSlice',
    service: 'web',
    addressType: 'IPv4',
    ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
    endpoints: [{ addresses: ['10.42.1.7'], conditions: { ready: true }, ...endpoint }],
    ...change,
  }
  return { namespace, name: 'web-abc', body }
}

function anEndpoint(change: Partial<EndpointSpec> = {}, name = 'milano.gw-lane0', namespace = ''): MemberRecord {
  const spec: EndpointSpec = {
    cluster: 'milano',
    node: 'gw',
    lane: 0,
    publicKey: KEY,
    candidates: [{ kind: 'public', address: '192.0.2.10', port: 4500 }],
    capabilities: [],
    ...change,
  }
  return { namespace, name, body: { kind: 'Endpoint', spec } }
}

const candidate = (address: string, port = 4500): Partial<EndpointSpec> => ({
  candidates: [{ kind: 'public', address, port }],
})

t.test('what is right is admitted', async (t) => {
  const rows = [
    anExport(),
    anExport({ ports: [], type: 'Headless' }),
    anExport({}, 'kube-public'),
    anExport({ exportedLabels: { 'app.example.org/tier': 'front' }, exportedAnnotations: { note: 'a\nb' } }),
    aSlice(),
    aSlice({ hostname: 'db-0' }),
    aSlice({}, { endpoints: [] }),
    anEndpoint(),
    anEndpoint({ candidates: [] }),
    anEndpoint({ lane: 255 }, 'milano.gw-lane255'),
  ]
  for (const record of rows) t.equal(admitRecord(record, context), undefined, JSON.stringify(record).slice(0, 80))
})

t.test('every refusal names the field and the reason', async (t) => {
  const rows: [MemberRecord, string][] = [
    [
      anExport({}, 'kube-system'),
      `namespace: "kube-system" is a system namespace: export from another one, or start the broker with --allow-namespace kube-system`,
    ],
    [
      anExport({}, 'openshift-dns'),
      `namespace: "openshift-dns" is a system namespace: export from another one, or start the broker with --allow-namespace openshift-dns`,
    ],
    [anExport({}, ''), 'namespace: "": expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -'],
    [anExport({}, 'a/b'), 'namespace: "a/b": expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -'],
    [anExport({}, 'shop', `${LONG}x`), `name: "${LONG}x" has 64 characters: expected at most 63`],
    [anExport({}, 'shop', 'Web'), 'name: "Web": expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -'],
    [anExport({ uid: '' }), 'uid: has 0 characters: expected 1 to 128'],
    [anExport({ type: 'NodePort' as 'Headless' }), 'type: "NodePort": expected ClusterSetIP or Headless'],
    [anExport({ ports: [{ protocol: 'TCP', port: 0 }] }), 'ports[0].port: 0: expected 1 to 65535'],
    [anExport({ ports: [{ protocol: 'TCP', port: 65_536 }] }), 'ports[0].port: 65536: expected 1 to 65535'],
    [
      anExport({ ports: [{ protocol: 'ICMP' as 'TCP', port: 1 }] }),
      'ports[0].protocol: "ICMP": expected TCP or UDP or SCTP',
    ],
    [
      anExport({
        ports: [
          { name: 'a', protocol: 'TCP', port: 80 },
          { name: 'a', protocol: 'TCP', port: 81 },
        ],
      }),
      'ports[1].name: "a" is the name of ports[0] as well',
    ],
    [
      anExport({
        ports: [
          { name: 'a', protocol: 'TCP', port: 80 },
          { name: 'b', protocol: 'TCP', port: 80 },
        ],
      }),
      'ports[1].port: TCP 80 is the port of ports[0] as well',
    ],
    [
      anExport({ ports: Array.from({ length: 20_001 }, (_, i) => ({ name: `p${i}`, protocol: 'TCP', port: i + 1 })) }),
      'ports: has 20001 entries: expected 0 to 20000',
    ],
    [
      anExport({ sessionAffinity: 'ClientIP', sessionAffinityTimeoutSeconds: 90_000 }),
      'sessionAffinityTimeoutSeconds: 90000: expected 1 to 86400',
    ],
    [anExport({ exportedLabels: { 'a b': 'c' } }), 'exportedLabels: key "a b": expected a Kubernetes label key'],
    [anExport({ exportedLabels: { a: 'b c' } }), 'exportedLabels[a]: "b c": expected a Kubernetes label value'],
    [anExport({ internalTrafficPolicy: 'x' }), 'internalTrafficPolicy: "x": expected Cluster or Local'],
    [
      anExport({ trafficDistribution: 'Prefer Close' }),
      'trafficDistribution: "Prefer Close": expected a Kubernetes qualified name such as example.org/name',
    ],
    [
      anExport({ ports: [{ protocol: 'TCP', port: 80, appProtocol: 'HTTP 2' }] }),
      'ports[0].appProtocol: "HTTP 2": expected a Kubernetes qualified name such as example.org/name',
    ],
    [
      anExport({ exportedAnnotations: { a: 'x'.repeat(262_144) } }),
      'exportedAnnotations: has 262145 bytes: expected at most 262144',
    ],
    [
      // The API server counts bytes.
      anExport({ exportedAnnotations: { a: 'é'.repeat(131_072) } }),
      'exportedAnnotations: has 262145 bytes: expected at most 262144',
    ],
    [
      aSlice({ addresses: ['127.0.0.1'] }),
      `endpoints[0].addresses[0]: "127.0.0.1" is a loopback address: expected one inside the cluster's pod CIDRs 10.42.0.0/16`,
    ],
    [
      aSlice({ addresses: ['169.254.1.1'] }),
      `endpoints[0].addresses[0]: "169.254.1.1" is a link-local address: expected one inside the cluster's pod CIDRs 10.42.0.0/16`,
    ],
    [
      aSlice({ addresses: ['224.0.0.1'] }),
      `endpoints[0].addresses[0]: "224.0.0.1" is a multicast address: expected one inside the cluster's pod CIDRs 10.42.0.0/16`,
    ],
    [
      aSlice({ addresses: ['0.0.0.0'] }),
      `endpoints[0].addresses[0]: "0.0.0.0" is an unspecified address: expected one inside the cluster's pod CIDRs 10.42.0.0/16`,
    ],
    [
      aSlice({ addresses: ['10.43.0.1'] }),
      `endpoints[0].addresses[0]: "10.43.0.1" is outside the cluster's pod CIDRs: expected one inside 10.42.0.0/16`,
    ],
    [aSlice({ addresses: ['10.42.0.1', 'x'] }), 'endpoints[0].addresses[1]: "x": expected an IPv4 address'],
    [aSlice({ addresses: ['fd00::1'] }), 'endpoints[0].addresses[0]: "fd00::1": expected an IPv4 address'],
    [aSlice({ addresses: [] }), 'endpoints[0].addresses: has 0 entries: expected 1 to 100'],
    [aSlice({ hostname: 'A' }), 'endpoints[0].hostname: "A": expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -'],
    [aSlice({ nodeName: 'a b' }), 'endpoints[0].nodeName: "a b": expected an RFC 1123 subdomain'],
    ...[
      ['a\u0007', '"a\\u0007"'],
      ['', '""'],
      ['z'.repeat(64), `"${'z'.repeat(64)}"`],
      ['-a', '"-a"'],
    ].flatMap(([zone = '', reported = '']): [MemberRecord, string][] => [
      [aSlice({ zone }), `endpoints[0].zone: ${reported}: expected a Kubernetes label value that is not empty`],
      [
        aSlice({ hints: { forZones: [{ name: 'z' }, { name: zone }] } }),
        `endpoints[0].hints.forZones[1]: ${reported}: expected a Kubernetes label value that is not empty`,
      ],
    ]),
    [aSlice({ pod: 'web-1' }), 'endpoints[0].pod: "web-1": expected 1 to 16 hexadecimal digits'],
    [
      aSlice({ hints: { forZones: Array.from({ length: 9 }, (_one, i) => ({ name: `z${i}` })) } }),
      'endpoints[0].hints.forZones: has 9 entries: expected 0 to 8',
    ],
    [aSlice({}, { service: 'a.b' }), 'service: "a.b": expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -'],
    [aSlice({}, { addressType: 'FQDN' as 'IPv4' }), 'addressType: "FQDN": expected IPv4 or IPv6'],
    [
      aSlice({}, {}, 'kube-system'),
      `namespace: "kube-system" is a system namespace: export from another one, or start the broker with --allow-namespace kube-system`,
    ],
    [anEndpoint({ cluster: 'paris' }), 'spec.cluster: "paris": expected "milano", the cluster of the certificate'],
    [anEndpoint({}, 'milano-gw'), 'name: "milano-gw": expected "milano.gw-lane0"'],
    [anEndpoint({ lane: 256 }, 'milano.gw-lane256'), 'spec.lane: 256: expected 0 to 255'],
    [anEndpoint({ lane: -1 }, 'milano.gw-lane-1'), 'spec.lane: -1: expected 0 to 255'],
    [anEndpoint({ publicKey: 'AAAA' }), 'spec.publicKey: "AAAA": expected 32 bytes in base64'],
    [
      anEndpoint({ publicKey: Buffer.alloc(32).toString('base64') }),
      'spec.publicKey: is all zeros: expected a Curve25519 public key',
    ],
    [
      anEndpoint({ publicKey: OTHER_KEY }),
      `spec.publicKey: "${OTHER_KEY}" is a key of cluster "paris", which stated it first: expected a key of its own for each gateway`,
    ],
    [anEndpoint({ nextPublicKey: 'AAAA' }), 'spec.nextPublicKey: "AAAA": expected 32 bytes in base64'],
    [anEndpoint({ nextPublicKey: KEY }), `spec.nextPublicKey: "${KEY}" is spec.publicKey: expected another key`],
    [
      anEndpoint({ nextPublicKey: OTHER_KEY }),
      `spec.nextPublicKey: "${OTHER_KEY}" is a key of cluster "paris", which stated it first: expected a key of its own for each gateway`,
    ],
    [
      anEndpoint(candidate('127.0.0.1')),
      'spec.candidates[0].address: "127.0.0.1" is a loopback address: expected one that other clusters can reach',
    ],
    [
      anEndpoint(candidate('::ffff:127.0.0.1')),
      'spec.candidates[0].address: "::ffff:127.0.0.1" is a loopback address: expected one that other clusters can reach',
    ],
    [
      anEndpoint(candidate('ff02::1')),
      'spec.candidates[0].address: "ff02::1" is a multicast address: expected one that other clusters can reach',
    ],
    [
      anEndpoint(candidate('244.1.0.5')),
      `spec.candidates[0].address: "244.1.0.5" is inside 244.0.0.0/8 (the clusterset's global range): expected one that other clusters can reach`,
    ],
    [
      anEndpoint(candidate('246.0.1.0')),
      'spec.candidates[0].address: "246.0.1.0" is inside 246.0.0.0/8 (the addresses of lane devices): expected one that other clusters can reach',
    ],
    [
      anEndpoint(candidate('gw.example.org')),
      'spec.candidates[0].address: "gw.example.org": expected an IPv4 or IPv6 address',
    ],
    [anEndpoint(candidate('192.0.2.1', 0)), 'spec.candidates[0].port: 0: expected 1 to 65535'],
    [anEndpoint({}, 'milano.gw-lane0', 'shop'), 'namespace: "shop": expected none, an Endpoint has no namespace'],
    [
      { namespace: '', name: 'x', body: { kind: 'Cluster' } as unknown as MemberRecord['body'] },
      'kind: "Cluster": only the broker writes this kind',
    ],
  ]
  for (const [record, want] of rows) {
    const got = admitRecord(record, context)
    t.equal(`${got?.field}: ${got?.message}`, want)
  }
})

t.test('an over-long name', async (t) => {
  const record = (hostname: string): MemberRecord => aSlice({ hostname }, { service: LONG }, LONG)
  const room = 229 - 2 * 63 - 'milano'.length
  t.equal(admitRecord(record('h'.repeat(Math.min(63, room))), context), undefined)
  const cluster = 'c'.repeat(50)
  t.equal(admitRecord(record('h'.repeat(53)), { ...context, cluster }), undefined)
  t.same(admitRecord(record('h'.repeat(54)), { ...context, cluster }), {
    field: 'endpoints[0].hostname',
    reason: 'HostnameTooLong',
    message: `"${'h'.repeat(54)}": the name "${'h'.repeat(54)}.${cluster}.xxxxxxxxxxxxxx…" needs 230 characters in hostname, cluster, service and namespace: expected at most 229 together`,
  })
})

t.test('whatever is admitted has only addresses of its own', async (t) => {
  const octet = fc.oneof(fc.integer({ min: 0, max: 255 }), fc.constantFrom(0, 10, 42, 127, 169, 224, 254, 255))
  const address = fc.oneof(
    { arbitrary: fc.tuple(octet, octet).map(([a, b]) => `10.42.${a}.${b}`), weight: 6 },
    fc.tuple(octet, octet, octet, octet).map((parts) => parts.join('.')),
    fc.ipV6(),
    fc.string(),
  )
  let admitted = 0
  fc.assert(
    fc.property(fc.array(address, { maxLength: 4 }), (addresses) => {
      if (admitRecord(aSlice({ addresses }), context) !== undefined) return true
      admitted += 1
      return addresses.every((text) => {
        const parsed = parseAddress(text)
        return containsAddress(parsePrefix('10.42.0.0/16'), parsed) && formatAddress(parsed) === text
      })
    }),
    { numRuns: 500 },
  )
  t.ok(admitted > 20, `${admitted} were admitted`)
})

t.test('no text that passes could stand for another key', async () => {
  const label = fc.oneof(fc.string(), fc.constantFrom('a', 'kube-x', 'a/b', '', 'openshift', '-'))
  fc.assert(
    fc.property(label, label, (namespace, name) => {
      if (admitRecord(anExport({}, namespace, name), context) !== undefined) return true
      return /^[a-z0-9-]+$/.test(namespace) && /^[a-z0-9-]+$/.test(name) && !namespace.startsWith('kube-x')
    }),
  )
})

t.test('facts of a member', async (t) => {
  const ranges = { globalRange: '244.0.0.0/8', clustersetIpRange: '245.0.0.0/16' }
  const facts = (change: Partial<ClusterFacts>): ClusterFacts => ({
    podCIDRs: ['10.42.0.0/16'],
    serviceCIDRs: ['10.43.0.0/16'],
    labels: { region: 'eu-south' },
    version: '0.1.0',
    ...change,
  })
  t.equal(admitFacts(facts({}), ranges), undefined)
  t.equal(admitFacts(facts({ podCIDRs: ['240.10.0.0/16'], serviceCIDRs: [] }), ranges), undefined)
  const both = { podCIDRs: ['10.42.0.0/16', 'fd00::/16', '2001:db8::/124'], serviceCIDRs: ['fd01::/108'] }
  t.equal(admitFacts(facts(both), ranges), undefined)
  const rows: [Partial<ClusterFacts>, string][] = [
    [{ podCIDRs: [] }, 'podCIDRs: has 0 entries: expected 1 to 16'],
    [{ podCIDRs: ['10.42.0.0'] }, 'podCIDRs[0]: "10.42.0.0": expected a CIDR such as 10.42.0.0/16'],
    [{ podCIDRs: ['10.42.0.1/16'] }, 'podCIDRs[0]: "10.42.0.1/16": expected no host bits set, as in 10.42.0.0/16'],
    [{ podCIDRs: ['10.42.0.0/33'] }, 'podCIDRs[0]: "10.42.0.0/33": expected a prefix length of at most 32'],
    [{ podCIDRs: ['10.0.0.0/7'] }, 'podCIDRs[0]: "10.0.0.0/7" is too large: expected /8 to /28'],
    [{ podCIDRs: ['10.42.0.0/29'] }, 'podCIDRs[0]: "10.42.0.0/29" is too small: expected /8 to /28'],
    [
      { podCIDRs: ['fd00::/64', 'fd01::/64'] },
      'podCIDRs: fd00::/64, fd01::/64: expected an IPv4 CIDR as well, this version does not connect pods without IPv4',
    ],
    [{ podCIDRs: ['10.42.0.0/16', 'fd00::/15'] }, 'podCIDRs[1]: "fd00::/15" is too large: expected /16 to /124'],
    [{ podCIDRs: ['fd00::/125', '10.42.0.0/16'] }, 'podCIDRs[0]: "fd00::/125" is too small: expected /16 to /124'],
    [
      { podCIDRs: ['10.42.0.0/16', 'fd00::1/64'] },
      'podCIDRs[1]: "fd00::1/64": expected no host bits set, as in fd00::/64',
    ],
    [
      { podCIDRs: ['10.42.0.0/16', '64:ff9b::/96'] },
      'podCIDRs[1]: "64:ff9b::/96": expected addresses inside fc00::/7 or 2000::/3',
    ],
    [
      { podCIDRs: ['10.42.0.0/16', '::ffff:0:0/96'] },
      'podCIDRs[1]: "::ffff:0:0/96": expected addresses inside fc00::/7 or 2000::/3',
    ],
    [
      { podCIDRs: ['10.42.0.0/16', 'fe80::/64'] },
      `podCIDRs[1]: "fe80::/64" overlaps fe80::/10 (link-local addresses): expected pod addresses of the cluster's own`,
    ],
    [
      { podCIDRs: ['10.42.0.0/16', 'fd53:ea1a:4e00::/48'] },
      `podCIDRs[1]: "fd53:ea1a:4e00::/48" overlaps fd53:ea1a:4e00::/96 (the range of IPv6 clusterset IPs): expected pod addresses of the cluster's own`,
    ],
    [
      { podCIDRs: ['10.42.0.0/16', 'fd00::/48', 'fd00:0:0:7::/64'] },
      'podCIDRs[2]: "fd00:0:0:7::/64" overlaps podCIDRs[1] "fd00::/48": expected ranges apart from each other',
    ],
    [{ serviceCIDRs: ['fd00::/15'] }, 'serviceCIDRs[0]: "fd00::/15" is too large: expected /16 or smaller'],
    [
      { podCIDRs: ['127.1.0.0/16'] },
      `podCIDRs[0]: "127.1.0.0/16" overlaps 127.0.0.0/8 (loopback addresses): expected pod addresses of the cluster's own`,
    ],
    [
      { podCIDRs: ['169.0.0.0/8'] },
      `podCIDRs[0]: "169.0.0.0/8" overlaps 169.254.0.0/16 (link-local addresses): expected pod addresses of the cluster's own`,
    ],
    [
      { podCIDRs: ['244.1.0.0/16'] },
      `podCIDRs[0]: "244.1.0.0/16" overlaps 244.0.0.0/8 (the clusterset's global range): expected pod addresses of the cluster's own`,
    ],
    [
      { podCIDRs: ['10.42.0.0/16', '10.42.1.0/24'] },
      'podCIDRs[1]: "10.42.1.0/24" overlaps podCIDRs[0] "10.42.0.0/16": expected ranges apart from each other',
    ],
    [
      { serviceCIDRs: ['10.42.0.0/20'] },
      'serviceCIDRs[0]: "10.42.0.0/20" overlaps podCIDRs[0] "10.42.0.0/16": expected ranges apart from each other',
    ],
    [{ serviceCIDRs: ['0.0.0.0/1'] }, 'serviceCIDRs[0]: "0.0.0.0/1" is too large: expected /8 or smaller'],
    [
      { serviceCIDRs: ['245.0.0.0/20'] },
      `serviceCIDRs[0]: "245.0.0.0/20" overlaps 245.0.0.0/16 (the clusterset IP range): expected service addresses of the cluster's own`,
    ],
    [
      { serviceCIDRs: ['224.0.0.0/16'] },
      `serviceCIDRs[0]: "224.0.0.0/16" overlaps 224.0.0.0/4 (multicast addresses): expected service addresses of the cluster's own`,
    ],
    [
      { serviceCIDRs: ['::ffff:10.0.0.0/104'] },
      'serviceCIDRs[0]: "::ffff:10.0.0.0/104": expected addresses inside fc00::/7 or 2000::/3',
    ],
    [{ serviceCIDRs: ['x'] }, 'serviceCIDRs[0]: "x": expected a CIDR such as 10.42.0.0/16'],
    [{ labels: { 'a b': 'c' } }, 'labels: key "a b": expected a Kubernetes label key'],
    [{ labels: { a: 'b c' } }, 'labels[a]: "b c": expected a Kubernetes label value'],
    [{ version: 'v\n' }, 'version: "v\\n": expected no control characters'],
  ]
  for (const [change, want] of rows) {
    const got = admitFacts(facts(change), ranges)
    t.equal(`${got?.field}: ${got?.message}`, want)
  }
})
