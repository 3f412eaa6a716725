/** Every record that the wire allows, for property tests. */
import fc from 'fast-check'
import { NOT_IMPORTED_REASONS, PROBLEM_SEVERITIES } from '../../model/member-status.ts'
import type { MemberRecord, RecordBody, StoredRecord } from '../../model/records.ts'

const name = fc.string({ minLength: 1, maxLength: 40, unit: fc.constantFrom('a', 'b', 'z', '0', '9', '-', '.') })
const words = fc.string({ unit: 'grapheme', maxLength: 20 })
const port = fc.integer({ min: 1, max: 65_535 })
const protocol = fc.constantFrom('TCP' as const, 'UDP' as const, 'SCTP' as const)
const family = fc.constantFrom('IPv4' as const, 'IPv6' as const)
const address = fc.oneof(fc.ipV4(), fc.ipV6())
const labelKey = fc.oneof(
  fc.string({ unit: 'grapheme', minLength: 1, maxLength: 20 }),
  fc.constantFrom('__proto__', 'toString'),
)
const labels = fc.dictionary(labelKey, words, { maxKeys: 5 })
const maybe = { requiredKeys: [] as [] }

const ids = fc.array(name, { maxLength: 4 })
const selector = fc.record(
  {
    matchLabels: labels,
    matchExpressions: fc.array(
      fc.record(
        {
          key: labelKey,
          operator: fc.constantFrom('In' as const, 'NotIn' as const, 'Exists' as const, 'DoesNotExist' as const),
          values: fc.array(words, { maxLength: 3 }),
        },
        { requiredKeys: ['key', 'operator'] },
      ),
      { maxLength: 3 },
    ),
  },
  maybe,
)
const offer = fc.array(
  fc.record(
    { clusters: ids, namespaces: fc.record({ names: ids, selectors: fc.array(selector, { maxLength: 2 }) }) },
    { requiredKeys: ['clusters'] },
  ),
  { maxLength: 3 },
)

const clusterSelectors = fc.array(
  fc.record(
    {
      propertySelector: selector.map(({ matchLabels, ...rest }) => ({
        ...rest,
        ...(matchLabels === undefined ? {} : { matchProperties: matchLabels }),
      })),
    },
    maybe,
  ),
  { maxLength: 3 },
)

const serviceExport = fc.record(
  {
    kind: fc.constant('ServiceExport' as const),
    uid: words,
    type: fc.constantFrom('ClusterSetIP' as const, 'Headless' as const),
    ports: fc.array(
      fc.record({ name: words, protocol, port, appProtocol: words }, { requiredKeys: ['protocol', 'port'] }),
      { maxLength: 5 },
    ),
    sessionAffinity: fc.constantFrom('ClientIP' as const, 'None' as const),
    sessionAffinityTimeoutSeconds: fc.integer({ min: 1, max: 86_400 }),
    internalTrafficPolicy: words,
    trafficDistribution: words,
    ipFamilies: fc.array(family, { maxLength: 2 }),
    exportedLabels: labels,
    exportedAnnotations: labels,
    offeredTo: offer,
    clusterSelectors,
    drained: fc.boolean(),
    drainedNow: fc.boolean(),
    keepsOpen: fc.boolean(),
    endsOpen: fc.boolean(),
  },
  {
    requiredKeys: [
      'kind',
      'uid',
      'type',
      'ports',
      'sessionAffinity',
      'ipFamilies',
      'exportedLabels',
      'exportedAnnotations',
    ],
  },
)

const endpoint = fc.record(
  {
    addresses: fc.array(address, { maxLength: 3 }),
    hostname: name,
    nodeName: name,
    zone: words,
    hints: fc.record({
      forZones: fc.array(fc.record({ name: fc.string({ minLength: 1, maxLength: 63 }) }), {
        minLength: 1,
        maxLength: 8,
      }),
    }),
    pod: fc.string({ minLength: 1, maxLength: 8 }),
    conditions: fc.record({ ready: fc.boolean(), serving: fc.boolean(), terminating: fc.boolean() }, maybe),
  },
  { requiredKeys: ['addresses'] },
)

const endpointSlice = fc.record(
  {
    kind: fc.constant('EndpointSlice' as const),
    service: name,
    addressType: family,
    ports: fc.array(fc.record({ name: words, protocol, port, appProtocol: words }, maybe), { maxLength: 5 }),
    endpoints: fc.array(endpoint, { maxLength: 10 }),
    offeredTo: ids,
  },
  { requiredKeys: ['kind', 'service', 'addressType', 'ports', 'endpoints'] },
)

const publicKey = fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => Buffer.from(bytes).toString('base64'))

const laneEndpointSpec = fc.record(
  {
    cluster: name,
    node: name,
    lane: fc.nat(255),
    publicKey,
    nextPublicKey: publicKey,
    candidates: fc.array(
      fc.record({
        kind: fc.constantFrom('private' as const, 'public' as const, 'observed' as const, 'loadBalancer' as const),
        address,
        port,
      }),
      { maxLength: 4 },
    ),
    capabilities: fc.array(name, { maxLength: 4 }),
  },
  { requiredKeys: ['cluster', 'node', 'lane', 'publicKey', 'candidates', 'capabilities'] },
)

const laneEndpoint = fc.record({ kind: fc.constant('Endpoint' as const), spec: laneEndpointSpec })

const cluster = fc.record({
  kind: fc.constant('Cluster' as const),
  spec: fc.record(
    {
      id: name,
      index: fc.nat(0xffff),
      podCIDRs: fc.array(address, { maxLength: 3 }),
      serviceCIDRs: fc.array(address, { maxLength: 3 }),
      globalCIDRs: fc.array(address, { maxLength: 3 }),
      labels,
      properties: labels,
    },
    { requiredKeys: ['id', 'index', 'podCIDRs', 'serviceCIDRs', 'globalCIDRs', 'labels'] },
  ),
})

const clusterSetIp = fc.record({ kind: fc.constant('ClusterSetIP' as const), ips: fc.array(address, { maxLength: 2 }) })

const uint32 = fc.nat(0xffffffff)
const memberReport = fc.record({
  versions: fc.array(fc.string({ maxLength: 63 }), { maxLength: 8 }),
  lanes: fc.record({ up: uint32, of: uint32 }),
  exports: fc.record({ count: uint32, failed: uint32 }),
  problems: fc.array(
    fc.record({
      code: fc.stringMatching(/^[A-Z][A-Za-z0-9]{0,62}$/),
      severity: fc.constantFrom(...PROBLEM_SEVERITIES),
      count: uint32,
    }),
    { maxLength: 32 },
  ),
})

const memberStatus = fc.record(
  {
    kind: fc.constant('MemberStatus' as const),
    notImported: fc.array(
      fc.record({ reason: fc.constantFrom(...NOT_IMPORTED_REASONS), namespace: name, name, cluster: name }),
      { maxLength: 5 },
    ),
    leftOut: fc.maxSafeNat(),
    report: memberReport,
  },
  { requiredKeys: ['kind', 'notImported', 'leftOut'] },
)

const dnsLabel = fc.stringMatching(/^[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?$/)
const labelled = fc.array(dnsLabel, { maxLength: 4 })
const side = fc.record({ clusters: labelled, selector }, maybe)
const topology = fc.record({
  kind: fc.constant('Topology' as const),
  number: fc.maxSafeNat(),
  topology: fc.oneof(
    fc.constant({ mode: 'full' as const }),
    fc.record({
      mode: fc.constant('groups' as const),
      groups: fc.array(fc.record({ name: dnsLabel, clusters: labelled }), { maxLength: 3 }),
    }),
    fc.record(
      { mode: fc.constant('hub-and-spoke' as const), hubs: labelled, via: fc.array(dnsLabel, { minLength: 1 }) },
      { requiredKeys: ['mode', 'hubs'] },
    ),
    fc.record({
      mode: fc.constant('pairs' as const),
      // Those that link directly come first, as the reader of topologies sorts them.
      pairs: fc
        .array(
          fc.record(
            { between: side, and: side, via: fc.array(dnsLabel, { minLength: 1, maxLength: 3 }) },
            { requiredKeys: ['between', 'and'] },
          ),
          { maxLength: 3 },
        )
        .map((pairs) => pairs.toSorted((a, b) => Number('via' in a) - Number('via' in b))),
    }),
  ),
})

const memberBody = fc.oneof(serviceExport, endpointSlice, laneEndpoint) as fc.Arbitrary<MemberRecord['body']>
const body = fc.oneof(memberBody, cluster, clusterSetIp, memberStatus, topology) as fc.Arbitrary<RecordBody>
const namespace = fc.oneof(fc.constant(''), name)

export const anyMemberRecord: fc.Arbitrary<MemberRecord> = fc.record({ namespace, name, body: memberBody })

export const anyStoredRecord: fc.Arbitrary<StoredRecord> = fc
  .record({ cluster: namespace, namespace, name, body, revision: fc.maxSafeNat(), createdAtMs: fc.maxSafeNat() })
  .map(({ cluster: owner, namespace: space, name: called, body: what, revision, createdAtMs }) => ({
    key: { cluster: owner as StoredRecord['key']['cluster'], kind: what.kind, namespace: space, name: called },
    revision,
    createdAtMs,
    body: what,
  }))
