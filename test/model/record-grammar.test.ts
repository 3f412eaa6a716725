/** Each field has one form: the decoder, admission and every importer check it. */
import fc from 'fast-check'
import t from 'tap'
import { recordProblem } from '../../agent/import/check-record.ts'
import { newImportMemory, planImports } from '../../agent/import/plan-imports.ts'
import { type AdmissionContext, admitRecord } from '../../broker/records/admission.ts'
import { admitFacts, admitStatus } from '../../broker/records/admission-facts.ts'
import { parsePrefix } from '../../model/values/ip.ts'
import { type AnyForm, formProblem } from '../../model/grammar/forms.ts'
import { RECORD_FORMS, sliceForm } from '../../model/grammar/record-forms.ts'
import { NOT_IMPORTED_REASONS, PROBLEM_SEVERITIES } from '../../model/member-status.ts'
import type { ClusterId } from '../../model/ids.ts'
import type { RecordBody, StoredRecord } from '../../model/records.ts'
import { canonicalJson } from '../../protocol/codec/content-hash.ts'
import { bodyFromBytes, bodyToBytes } from '../../protocol/codec/records-codec.ts'
import { world } from '../agent/import-fixtures.ts'

const RANGES = { globalRange: '244.0.0.0/8', clustersetIpRange: '245.0.0.0/16' }
const context: AdmissionContext = {
  cluster: 'milano',
  podCIDRs: [parsePrefix('10.42.0.0/16'), parsePrefix('fd42::/48')],
  allowedNamespaces: [],
  ranges: RANGES,
  publicKeyOwner: () => undefined,
}

const maybe = <T>(one: fc.Arbitrary<T>): { readonly one: fc.Arbitrary<T> } => ({ one })
/** A record whose fields are optional if they are wrapped by maybe(). */
function shape(fields: Record<string, fc.Arbitrary<unknown> | { readonly one: fc.Arbitrary<unknown> }>) {
  const model: Record<string, fc.Arbitrary<unknown>> = {}
  const requiredKeys: string[] = []
  for (const [key, value] of Object.entries(fields)) {
    model[key] = 'one' in value ? value.one : value
    if (!('one' in value)) requiredKeys.push(key)
  }
  return fc.record(model, { requiredKeys } as { requiredKeys: never[] })
}

const label = fc.stringMatching(/^[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?$/)
const labelOrNothing = fc.oneof(label, fc.constant(''))
const name = fc.oneof(label, fc.constantFrom('x'.repeat(69), 'a.b', `${'n'.repeat(63)}.example.org`))
const labelValue = fc.stringMatching(/^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/)
const qualified = fc.oneof(labelValue, fc.constantFrom('kubernetes.io/h2c', `${'a.'.repeat(20)}b/x`))
const port = fc.integer({ min: 1, max: 65_535 })
const transport = fc.constantFrom('TCP', 'UDP', 'SCTP')
const key = fc
  .uint8Array({ minLength: 32, maxLength: 32 })
  .filter((bytes) => bytes.some((byte) => byte !== 0))
  .map((bytes) => Buffer.from(bytes).toString('base64'))
const byte = fc.integer({ min: 1, max: 254 })
const ipv4 = fc.tuple(byte, byte).map(([a, b]) => `10.42.${a}.${b}`)
const ipv6 = fc.integer({ min: 1, max: 0xffff }).map((n) => `fd42::${n.toString(16)}`)
const labels = fc.dictionary(qualified, fc.oneof(labelValue, fc.constant('')), { maxKeys: 3 })
const plain = fc.stringMatching(/^[a-z0-9 :-]{1,40}$/)

const exportBody = shape({
  kind: fc.constant('ServiceExport'),
  uid: plain,
  type: fc.constantFrom('ClusterSetIP', 'Headless'),
  ports: fc.uniqueArray(
    shape({ port, protocol: transport, name: maybe(labelOrNothing), appProtocol: maybe(qualified) }),
    { maxLength: 3, comparator: (a, b) => a['port'] === b['port'] || (a['name'] ?? '') === (b['name'] ?? '') },
  ),
  sessionAffinity: fc.constantFrom('ClientIP', 'None'),
  sessionAffinityTimeoutSeconds: maybe(fc.integer({ min: 1, max: 86_400 })),
  internalTrafficPolicy: maybe(fc.constantFrom('Cluster', 'Local')),
  trafficDistribution: maybe(qualified),
  ipFamilies: fc.array(fc.constantFrom('IPv4', 'IPv6'), { maxLength: 2 }),
  exportedLabels: labels,
  exportedAnnotations: fc.dictionary(qualified, fc.string({ unit: 'grapheme' }), { maxKeys: 3 }),
})

const sliceBody = fc.constantFrom('IPv4', 'IPv6').chain((addressType) =>
  shape({
    kind: fc.constant('EndpointSlice'),
    service: label,
    addressType: fc.constant(addressType),
    ports: fc.array(
      shape({
        port: maybe(port),
        protocol: maybe(transport),
        name: maybe(labelOrNothing),
        appProtocol: maybe(qualified),
      }),
      { maxLength: 3 },
    ),
    endpoints: fc.array(
      shape({
        addresses: fc.array(addressType === 'IPv4' ? ipv4 : ipv6, { minLength: 1, maxLength: 3 }),
        hostname: maybe(labelOrNothing),
        nodeName: maybe(name),
        zone: maybe(labelValue),
        pod: maybe(fc.stringMatching(/^[0-9a-f]{1,16}$/)),
        hints: maybe(shape({ forZones: fc.array(shape({ name: labelValue }), { minLength: 1, maxLength: 8 }) })),
        conditions: maybe(
          shape({ ready: maybe(fc.boolean()), serving: maybe(fc.boolean()), terminating: maybe(fc.boolean()) }),
        ),
      }),
      { maxLength: 4 },
    ),
  }),
)

const endpointBody = shape({
  kind: fc.constant('Endpoint'),
  spec: shape({
    cluster: fc.constant('milano'),
    node: label,
    lane: fc.nat(255),
    publicKey: key,
    nextPublicKey: maybe(key),
    candidates: fc.array(
      shape({
        kind: fc.constantFrom('private', 'public', 'observed', 'loadBalancer'),
        address: fc.oneof(
          byte.map((n) => `192.0.2.${n}`),
          byte.map((n) => `2001:db8::${n}`),
        ),
        port,
      }),
      { maxLength: 4 },
    ),
    capabilities: fc.array(plain, { maxLength: 4 }),
  }),
})

const clusterBody = shape({
  kind: fc.constant('Cluster'),
  spec: shape({
    id: fc.constant('milano'),
    index: fc.nat(0xffff),
    podCIDRs: byte.map((n) => [`10.${n === 42 ? 41 : n}.0.0/16`]),
    serviceCIDRs: fc.constantFrom([], ['198.18.0.0/24']),
    globalCIDRs: fc.constant([]),
    labels,
  }),
})

const ipBody = shape({
  kind: fc.constant('ClusterSetIP'),
  ips: fc.array(
    byte.map((n) => `245.0.0.${n}`),
    { minLength: 1, maxLength: 2 },
  ),
})

const count = fc.nat(1000)
const statusBody = shape({
  kind: fc.constant('MemberStatus'),
  notImported: fc.array(
    shape({
      reason: fc.constantFrom(...NOT_IMPORTED_REASONS),
      namespace: label,
      name: labelOrNothing,
      cluster: labelOrNothing,
    }),
    { maxLength: 3 },
  ),
  leftOut: fc.maxSafeNat(),
  openConnections: maybe(shape({ count, atLeast: fc.boolean() })),
  report: maybe(
    shape({
      versions: fc.array(fc.stringMatching(/^[0-9A-Za-z][0-9A-Za-z.+_-]{0,20}$/), { maxLength: 8 }),
      lanes: count.map((up) => ({ up, of: up + 1 })),
      exports: count.map((failed) => ({ count: failed + 1, failed })),
      problems: fc.uniqueArray(
        shape({
          code: fc.stringMatching(/^[A-Z][A-Za-z0-9]{0,20}$/),
          severity: fc.constantFrom(...PROBLEM_SEVERITIES),
          count: fc.integer({ min: 1, max: 1000 }),
        }),
        { maxLength: 5, selector: (one) => one['code'] },
      ),
    }),
  ),
})

const labelList = fc.array(label, { maxLength: 3 })
const topologyBody = shape({
  kind: fc.constant('Topology'),
  number: count,
  topology: fc.oneof(
    shape({ mode: fc.constant('full') }),
    shape({ mode: fc.constant('hub-and-spoke'), hubs: labelList }),
    shape({
      mode: fc.constant('groups'),
      groups: fc.array(shape({ name: label, clusters: labelList }), { maxLength: 3 }),
    }),
  ),
})

const BODIES: Readonly<Record<RecordBody['kind'], fc.Arbitrary<RecordBody>>> = {
  ServiceExport: exportBody as fc.Arbitrary<unknown> as fc.Arbitrary<RecordBody>,
  EndpointSlice: sliceBody as fc.Arbitrary<unknown> as fc.Arbitrary<RecordBody>,
  Endpoint: endpointBody as fc.Arbitrary<unknown> as fc.Arbitrary<RecordBody>,
  Cluster: clusterBody as fc.Arbitrary<unknown> as fc.Arbitrary<RecordBody>,
  ClusterSetIP: ipBody as fc.Arbitrary<unknown> as fc.Arbitrary<RecordBody>,
  MemberStatus: statusBody as fc.Arbitrary<unknown> as fc.Arbitrary<RecordBody>,
  Topology: topologyBody as fc.Arbitrary<unknown> as fc.Arbitrary<RecordBody>,
}
const KINDS = Object.keys(BODIES) as RecordBody['kind'][]

/** A record under the key that `body` has, with another body if one is given. */
function named(body: RecordBody, inside: RecordBody = body): StoredRecord {
  const isOfService = body.kind === 'ServiceExport' || body.kind === 'EndpointSlice' || body.kind === 'ClusterSetIP'
  const cluster = (body.kind === 'ClusterSetIP' || body.kind === 'Topology' ? '' : 'milano') as ClusterId
  const called =
    body.kind === 'Endpoint' ? `milano.${body.spec.node}-lane${body.spec.lane}` : isOfService ? 'web' : 'milano'
  const at = { cluster, kind: body.kind, namespace: isOfService ? 'shop' : '', name: called }
  return { key: at, revision: 1, createdAtMs: 1, body: inside }
}

/** Admission's message. A record that only the broker writes is checked by the message it is made from. */
function admitted(record: StoredRecord): string | undefined {
  const { key: at, body } = record
  if (body.kind === 'ClusterSetIP' || body.kind === 'Topology') return undefined
  const refused =
    body.kind === 'MemberStatus'
      ? admitStatus(body)
      : body.kind === 'Cluster'
        ? admitFacts({ ...body.spec, version: '0.1.0' }, RANGES)
        : admitRecord({ namespace: at.namespace, name: at.name, body: body }, context)
  return refused && `${refused.field}: ${refused.message}`
}

/** What the importer leaves out: the whole record, or a part of it. */
function leftOut(record: StoredRecord): string[] {
  const problem = recordProblem(record, {})
  if (problem !== undefined) return [problem.message]
  const { body } = record
  const spec = { podCIDRs: ['10.42.0.0/16', 'fd42::/48'], serviceCIDRs: [], globalCIDRs: [], labels: {} }
  const milano = named({ kind: 'Cluster', spec: { ...spec, id: 'milano', index: 1 } })
  const others = body.kind === 'Cluster' ? [] : [milano]
  const ownSpec = { ...spec, id: 'tokyo', index: 3, podCIDRs: ['100.64.0.0/24', 'fd01::/48'] }
  const exported =
    body.kind === 'EndpointSlice'
      ? [anExport(body.service, 'Headless')]
      : body.kind === 'ClusterSetIP'
        ? [anExport('web')]
        : []
  const records = [...others, ...exported, record]
  const plan = planImports(
    world(records, { ownSpec, ownFacts: { stated: undefined, local: ownSpec, globalRange: RANGES.globalRange } }),
    newImportMemory({ allowedNamespaces: [] }),
  )
  return plan.dropped.map(({ message }) => message)
}

function anExport(service: string, type: 'ClusterSetIP' | 'Headless' = 'ClusterSetIP'): StoredRecord {
  const record = named({
    kind: 'ServiceExport',
    uid: 'u',
    type,
    ports: [],
    sessionAffinity: 'None',
    ipFamilies: ['IPv4', 'IPv6'],
    exportedLabels: {},
    exportedAnnotations: {},
  })
  return { ...record, key: { ...record.key, name: service } }
}

function decoded(body: RecordBody): RecordBody | string {
  try {
    return bodyFromBytes(bodyToBytes(body))
  } catch (error) {
    return (error as Error).message
  }
}

for (const kind of KINDS) {
  t.test(`a valid ${kind} passes decoder, admission and importer`, async (t) => {
    fc.assert(
      fc.property(BODIES[kind], (body) => {
        const back = decoded(body)
        t.equal(canonicalJson(back), canonicalJson(body))
        t.strictSame(admitted(named(body)), undefined)
        t.strictSame(leftOut(named(body)), [])
      }),
      { numRuns: 100 },
    )
  })
}

/** A record of each kind in which every field has a value. */
const WHOLE: Readonly<Record<'ServiceExport' | 'EndpointSlice' | 'Endpoint' | 'Cluster' | 'ClusterSetIP', RecordBody>> =
  {
    ServiceExport: {
      kind: 'ServiceExport',
      uid: 'u1',
      type: 'ClusterSetIP',
      ports: [{ name: 'http', protocol: 'TCP', port: 80, appProtocol: 'http' }],
      sessionAffinity: 'ClientIP',
      sessionAffinityTimeoutSeconds: 10,
      internalTrafficPolicy: 'Cluster',
      trafficDistribution: 'PreferClose',
      ipFamilies: ['IPv4'],
      exportedLabels: { a: 'b' },
      exportedAnnotations: { a: 'b' },
      offeredTo: [
        {
          clusters: ['tokyo' as ClusterId],
          namespaces: {
            names: ['shop'],
            selectors: [{ matchLabels: { a: 'b' }, matchExpressions: [{ key: 'a', operator: 'In', values: ['b'] }] }],
          },
        },
      ],
      clusterSelectors: [
        {
          propertySelector: {
            matchProperties: { 'region.sealane.io': '@SameAsImporter@' },
            matchExpressions: [{ key: 'zone.sealane.io', operator: 'In', values: ['a b'] }],
          },
        },
      ],
      drained: true,
      drainedNow: true,
      keepsOpen: true,
      endsOpen: true,
    },
    EndpointSlice: {
      kind: 'EndpointSlice',
      service: 'web',
      addressType: 'IPv4',
      ports: [{ name: 'http', protocol: 'TCP', port: 80, appProtocol: 'http' }],
      endpoints: [
        {
          addresses: ['10.42.0.5'],
          hostname: 'db-0',
          nodeName: 'node-1',
          zone: 'z',
          pod: 'ab',
          hints: { forZones: [{ name: 'z' }] },
          conditions: { ready: true, serving: true, terminating: false },
        },
      ],
      offeredTo: ['tokyo' as ClusterId],
    },
    Endpoint: {
      kind: 'Endpoint',
      spec: {
        cluster: 'milano',
        node: 'gw',
        lane: 0,
        publicKey: Buffer.alloc(32, 7).toString('base64'),
        nextPublicKey: Buffer.alloc(32, 8).toString('base64'),
        candidates: [{ kind: 'public', address: '192.0.2.10', port: 4500 }],
        capabilities: ['wireguard'],
      },
    },
    Cluster: {
      kind: 'Cluster',
      spec: {
        id: 'milano',
        index: 1,
        podCIDRs: ['10.41.0.0/16'],
        serviceCIDRs: ['198.18.0.0/24'],
        globalCIDRs: ['244.1.0.0/16'],
        labels: { a: 'b' },
        properties: { 'region.sealane.io': 'eu west' },
      },
    },
    ClusterSetIP: { kind: 'ClusterSetIP', ips: ['245.0.0.7'] },
  }

interface Mutation {
  readonly path: readonly (string | number)[]
  /** Makes an invalid value from the value of the field. */
  readonly bad: (value: unknown) => unknown
  /** Whether the decoder refuses it too, because the value is beyond what a message may hold. */
  readonly isBeyondWire: boolean
}

/** The changes that break the form of each field. */
function mutationsOf(form: AnyForm, path: readonly (string | number)[] = []): Mutation[] {
  const one = (bad: Mutation['bad'], isBeyondWire: boolean): Mutation => ({ path, bad, isBeyondWire })
  switch (form.t) {
    case 'text': {
      const hostile = ['we b\u0007/ü', '../../x', '-', ' ', '"; drop'].filter(
        (text) => form.problem(text) !== undefined,
      )
      return [...hostile.map((text) => one(() => text, false)), one(() => 'x'.repeat(form.most + 1), true)]
    }
    case 'word':
      return [one(() => 'Nonsense', true), one(() => '', true)]
    case 'number':
      return [one(() => form.most + 1, true), ...(form.least > 0 ? [one(() => form.least - 1, true)] : [])]
    case 'flag':
      return []
    case 'list':
      return [
        one((value) => Array.from({ length: form.most + 1 }, () => (value as unknown[])[0]), true),
        ...(form.least > 0 ? [one(() => [], false)] : []),
        ...mutationsOf(form.item, [...path, 0]),
      ]
    case 'pairs':
      return [
        one(() => Object.fromEntries(Array.from({ length: form.mostRead + 1 }, (_, i) => [`k${i}`, 'v'])), true),
        one(
          () => Object.fromEntries(Array.from({ length: 90 }, (_, i) => [`k${i}`, 'v'.repeat(4000)])),
          form.value.most < 4000,
        ),
        one(() => ({ 'a b': 'c' }), false),
        one(() => ({ [`${'x'.repeat(form.key.most)}y`]: 'c' }), true),
        one(() => ({ a: 'x'.repeat(form.value.most + 1) }), true),
        ...(form.value.problem('a b') === undefined ? [] : [one(() => ({ a: 'a b' }), false)]),
      ]
    case 'group':
      return form.entries.flatMap(([name, field]) => mutationsOf(field, [...path, name]))
  }
}

function changed(value: unknown, path: readonly (string | number)[], bad: Mutation['bad']): unknown {
  const [head, ...rest] = path
  if (head === undefined) return bad(value)
  if (typeof head === 'number')
    return (value as unknown[]).map((one, i) => (i === head ? changed(one, rest, bad) : one))
  const group = value as Record<string, unknown>
  return { ...group, [head]: changed(group[head], rest, bad) }
}

/** The words by which the importer's messages name a field. */
const SAID: Readonly<Record<string, readonly string[]>> = {
  exportedLabels: ['label'],
  exportedAnnotations: ['annotation'],
  ports: ['port'],
  name: ['name', 'port', 'zone', 'forZones'],
  port: ['port'],
  appProtocol: ['appProtocol', 'port'],
  protocol: ['protocol', 'port'],
  addresses: ['endpoint'],
  address: ['candidate'],
  zone: ['zone'],
  forZones: ['zones', 'zone'],
  ips: ['IP'],
  spec: [],
  id: ['claims to be cluster'],
  cluster: ['claims to belong to cluster', 'cluster'],
}

/** Fields that the importer reads only in part, so that more than the form allows does no harm. */
const READ_IN_PART = /^(endpoints\[0\]\.(addresses|hints\.forZones)|ips)$/
/** Facts have other fields than the Cluster record that the broker makes from them. */
const STATED = /^spec\.(podCIDRs|serviceCIDRs|labels)/

for (const [kind, whole] of Object.entries(WHOLE)) {
  t.test(`a ${kind} with one field out of its form is refused by each, with the name of the field`, async (t) => {
    const form = whole.kind === 'EndpointSlice' ? sliceForm(whole) : RECORD_FORMS[kind as keyof typeof RECORD_FORMS]
    t.strictSame([decoded(whole), leftOut(named(whole)), admitted(named(whole))], [whole, [], undefined])
    const mutations = mutationsOf(form)
    t.ok(mutations.length > 5)
    for (const { path, bad, isBeyondWire } of mutations) {
      const body = changed(whole, path, bad) as RecordBody
      const field = path
        .map((part) => (typeof part === 'number' ? `[${part}]` : `.${part}`))
        .join('')
        .slice(1)
      const last = String(path.findLast((part) => typeof part === 'string'))
      const what = `${field}: ${JSON.stringify(path.reduce<unknown>((at, part) => (at as never)[part], body)).slice(0, 60)}`
      t.ok(
        formProblem(form as never, body as never)?.field.startsWith(field.replace(/\.name$/, '').replace(/\[0\]$/, '')),
        `form of ${what}`,
      )
      const wire = decoded(body)
      const nameOnWire = field.includes('forZones') ? 'zoneHints' : last
      if (isBeyondWire)
        t.ok(
          typeof wire === 'string' && wire.includes(nameOnWire),
          `decoder: ${what}: ${JSON.stringify(wire).slice(0, 100)}`,
        )
      if (kind !== 'ClusterSetIP' && (kind !== 'Cluster' || STATED.test(field)))
        t.ok(
          admitted(named(whole, body))?.includes(
            last === 'name' ? (field.includes('forZones') ? 'forZones' : 'name') : last,
          ),
          `admission: ${what}`,
        )
      if (READ_IN_PART.test(field)) continue
      const found = leftOut(named(whole, body)).join()
      t.ok(
        [last, ...(SAID[last] ?? [])].some((word) => found.includes(word)),
        `importer: ${what}: ${found.slice(0, 100)}`,
      )
    }
  })
}
