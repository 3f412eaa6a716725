/** Each kind has one description: what it accepts, its CRD accepts too, and so does the form for readers. */
import fc from 'fast-check'
import t from 'tap'
import type { z } from 'zod'
import { ACCESS_POLICY_FIELDS, CLUSTER_ACCESS_POLICY_FIELDS } from '../../../model/kinds/access-policy.ts'
import { CLUSTER_FIELDS } from '../../../model/kinds/cluster.ts'
import { CLUSTER_PROPERTY_FIELDS } from '../../../model/kinds/cluster-property.ts'
import { crdSchema } from '../../../model/kinds/crd-schema.ts'
import { ENDPOINT_FIELDS } from '../../../model/kinds/endpoint.ts'
import { ENDPOINT_SLICE_FIELDS } from '../../../model/kinds/endpoint-slice.ts'
import type { Schema } from '../../../model/kinds/fields.ts'
import { GATEWAY_FIELDS } from '../../../model/kinds/gateway.ts'
import { LEASE_FIELDS } from '../../../model/kinds/lease.ts'
import { loose, partOf } from '../../../model/kinds/loose.ts'
import { MEMBERSHIP_FIELDS } from '../../../model/kinds/membership.ts'
import { METADATA } from '../../../model/kinds/metadata.ts'
import { NAMESPACE_FIELDS } from '../../../model/kinds/namespace.ts'
import { NODE_FIELDS } from '../../../model/kinds/node.ts'
import { POD_FIELDS } from '../../../model/kinds/pod.ts'
import { ROUTE_AGENT_FIELDS } from '../../../model/kinds/route-agent.ts'
import { SERVICE_FIELDS } from '../../../model/kinds/service.ts'
import { SERVICE_EXPORT_FIELDS } from '../../../model/kinds/service-export.ts'
import { SERVICE_IMPORT_FIELDS } from '../../../model/kinds/service-import.ts'
import { TOPOLOGY_OBJECT_FIELDS } from '../../../model/kinds/topology.ts'
import { CLUSTER_TRAFFIC_POLICY_FIELDS, TRAFFIC_POLICY_FIELDS } from '../../../model/kinds/traffic-policy.ts'

const OWN: Readonly<Record<string, z.ZodObject>> = {
  AccessPolicy: ACCESS_POLICY_FIELDS,
  ClusterAccessPolicy: CLUSTER_ACCESS_POLICY_FIELDS,
  TrafficPolicy: TRAFFIC_POLICY_FIELDS,
  ClusterTrafficPolicy: CLUSTER_TRAFFIC_POLICY_FIELDS,
  Membership: MEMBERSHIP_FIELDS,
  Cluster: CLUSTER_FIELDS,
  Endpoint: ENDPOINT_FIELDS,
  Gateway: GATEWAY_FIELDS,
  RouteAgent: ROUTE_AGENT_FIELDS,
  ServiceExport: SERVICE_EXPORT_FIELDS,
  Topology: TOPOLOGY_OBJECT_FIELDS,
}
/** The CRDs of these kinds belong to other projects and accept more than Sealane writes. */
const SHARED: Readonly<Record<string, z.ZodObject>> = {
  ServiceImport: SERVICE_IMPORT_FIELDS,
  ClusterProperty: CLUSTER_PROPERTY_FIELDS,
}

/** The CEL rules of single fields that narrow the grammar: the generator produces values that satisfy them. */
const OF_RULE: readonly (readonly [rule: string, values: readonly string[]])[] = [
  ['isCIDR(self)', ['10.42.0.0/16', '0.0.0.0/0', 'fd00:1::/48']],
  ['isIP(self)', ['192.0.2.10', 'fd00::7']],
]

/** Evaluates a structural schema as the API server does, without the rules of CEL. */
function takes(schema: Schema, value: unknown): boolean {
  switch (schema.type) {
    case 'string': {
      if (typeof value !== 'string') return false
      const length = Array.from(value).length
      if (length < (schema.minLength ?? 0) || length > (schema.maxLength ?? Infinity)) return false
      if (schema.pattern !== undefined && !new RegExp(schema.pattern, 'u').test(value)) return false
      if (schema.format === 'date-time' && !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(value)) return false
      return schema.enum?.includes(value) ?? true
    }
    case 'integer':
    case 'number': {
      if (typeof value !== 'number' || (schema.type === 'integer' && !Number.isInteger(value))) return false
      const [least, most] = schema.format === 'int32' ? [-(2 ** 31), 2 ** 31 - 1] : [-Infinity, Infinity]
      return value >= Math.max(least, schema.minimum ?? least) && value <= Math.min(most, schema.maximum ?? most)
    }
    case 'boolean':
      return typeof value === 'boolean'
    case 'array':
      return (
        Array.isArray(value) && value.length <= (schema.maxItems ?? Infinity) && value.every((one) => takesItem(one))
      )
    case 'object': {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
      const entries = Object.entries(value as Readonly<Record<string, unknown>>)
      if (entries.length > (schema.maxProperties ?? Infinity)) return false
      if (schema.required?.some((name) => !Object.hasOwn(value, name)) === true) return false
      return entries.every(([name, one]) => {
        const field = schema.properties?.[name] ?? schema.additionalProperties
        return field === undefined || takes(field, one)
      })
    }
    case undefined:
    default:
      return true
  }
  function takesItem(one: unknown): boolean {
    return schema.items === undefined || takes(schema.items, one)
  }
}

const SPOILT: readonly unknown[] = [
  '',
  'a',
  'A b',
  'a-',
  'x'.repeat(64),
  'x'.repeat(254),
  'x'.repeat(2000),
  '😀'.repeat(10),
  '😀'.repeat(15),
  '\n',
  -1,
  0,
  0.5,
  1.5,
  256,
  70_000,
  2 ** 31,
  2 ** 53 - 1,
  true,
  null,
  [],
  {},
  [''],
  { a: 1 },
]
const spoilt = fc.constantFrom(...SPOILT)

/** Values that mostly fit a schema; now and then a part is something else. */
function likely(schema: Schema): fc.Arbitrary<unknown> {
  const rules = schema['x-kubernetes-validations'] ?? []
  const ruled = OF_RULE.find(([text]) => rules.some(({ rule }) => rule.startsWith(text)))
  if (ruled !== undefined) return fc.constantFrom(...ruled[1])
  // The two grammars of times differ only where Go is more lenient.
  if (schema.format === 'date-time') return fc.constantFrom('2026-11-29T04:00:00Z', '', 7)
  return fc.oneof({ weight: 60, arbitrary: fitting(schema) }, { weight: 1, arbitrary: spoilt })
}

function fitting(schema: Schema): fc.Arbitrary<unknown> {
  switch (schema.type) {
    case 'string': {
      // The protocols of ServiceImport that its CRD does not list.
      if (schema.description?.startsWith('TCP, ') === true) return fc.constantFrom('TCP', 'UDP', 'SCTP', 'ICMP')
      if (schema.enum !== undefined) return fc.constantFrom(...schema.enum)
      if (schema.pattern !== undefined)
        return fc.stringMatching(new RegExp(schema.pattern)).map((one) => fit(one, schema))
      return fc.string({
        unit: 'grapheme',
        minLength: schema.minLength ?? 0,
        maxLength: Math.min(20, schema.maxLength ?? 20),
      })
    }
    case 'integer':
      return fc.maxSafeInteger().map((one) => within(Math.abs(one), schema))
    case 'number':
      return fc.double({ min: schema.minimum ?? 0, max: schema.maximum ?? 1e9, noNaN: true })
    case 'boolean':
      return fc.boolean()
    case 'array':
      return fc.array(likely(schema.items ?? {}), { maxLength: Math.min(3, (schema.maxItems ?? 3) + 1) })
    case 'object': {
      if (schema.additionalProperties !== undefined) {
        return fc.dictionary(fc.string({ maxLength: 4 }), likely(schema.additionalProperties), {
          maxKeys: 70,
          size: '+1',
        })
      }
      const ofAll = schema.properties?.['metadata'] === undefined ? [] : ['apiVersion', 'kind', 'metadata']
      const fields = Object.entries(schema.properties ?? {}).filter(([name]) => !ofAll.includes(name))
      const values = Object.fromEntries(fields.map(([name, field]) => [name, likely(field)]))
      const all = fc.record(values, { requiredKeys: [...(schema.required ?? [])] })
      return fc.oneof({ weight: 60, arbitrary: all }, { weight: 1, arbitrary: fc.record(values, { requiredKeys: [] }) })
    }
    case undefined:
    default:
      return fc.constant({})
  }
}

function fit(text: string, { pattern = '', maxLength = Infinity }: Schema): string {
  const cut = text.slice(0, maxLength)
  return new RegExp(pattern).test(cut) ? cut : text
}

function within(value: number, { minimum = 0, maximum = 70_000 }: Schema): number {
  return minimum + (value % (maximum - minimum + 1))
}

/** The CRD of ServiceImport has no grammar for the names of clusters, but no reader accepts an empty one. */
function isNameless(object: unknown): boolean {
  return JSON.stringify(object).includes('"cluster":""')
}

const seed = Number(process.env['SEALANE_FUZZ_SEED'] ?? 20_261_129)

for (const [kind, type] of Object.entries({ ...OWN, ...SHARED })) {
  t.test(`${kind}: the description, its CRD and the form for readers agree`, async (t) => {
    const schema = crdSchema(type)
    const [readers, anyones] = [loose(type), loose(type, 'anyone')]
    let taken = 0
    fc.assert(
      fc.property(likely(schema), (object) => {
        const strict = type.safeParse(object).success
        const crd = takes(schema, object)
        if (strict) taken += 1
        if (strict && !(crd && readers.safeParse(object).success)) return false
        if (crd && !isNameless(object) && !anyones.safeParse(object).success) return false
        return kind in SHARED || strict === crd
      }),
      { seed, numRuns: 300 },
    )
    t.ok(taken > 20 && taken < 300, `${taken} of 300 were taken: both sides are looked at`)
  })
}

t.test('readers take a field of a later release, and refuse what is damaged', async (t) => {
  const spec = { clusterId: 'milano', phase: 'joined', clusterset: 'home', globalRange: '244.0.0.0/8' }
  const self = { spec: { ...spec, clustersetIpRange: '245.0.0.0/16' } }
  const takes = (value: object): boolean => loose(MEMBERSHIP_FIELDS).safeParse(value).success
  t.equal(takes(self), true)
  t.equal(takes({ ...self, later: 1, spec: { ...self.spec, later: { a: [] } } }), true)
  t.equal(takes({ spec: { ...self.spec, clusterset: 'Not a Label' } }), true, 'no reader relies on its grammar')
  t.equal(takes({ spec: { ...self.spec, globalRange: '244/8' } }), false)
  t.equal(takes({ spec: { ...self.spec, phase: 'resting' } }), false)
  t.equal(takes({ spec }), false)
})

// Kinds of Kubernetes: without a CRD of ours, so each has an object that its description takes, and parts to spoil.

const OF_KUBERNETES: Readonly<Record<string, { readonly type: z.ZodObject; readonly whole: object }>> = {
  metadata: {
    type: METADATA,
    whole: { name: 'web', namespace: 'shop', uid: 'u', generation: 1, labels: { app: 'web' }, annotations: {} },
  },
  Namespace: { type: NAMESPACE_FIELDS, whole: { status: { phase: 'Active' } } },
  Node: {
    type: NODE_FIELDS,
    whole: {
      spec: { podCIDR: '10.42.0.0/24', podCIDRs: ['10.42.0.0/24'], taints: [{ key: 'a', effect: 'NoSchedule' }] },
      status: { addresses: [{ type: 'InternalIP', address: '10.0.0.1' }] },
    },
  },
  Pod: {
    type: POD_FIELDS,
    whole: {
      spec: { nodeName: 'gw', hostname: 'web-0', hostNetwork: false },
      status: { phase: 'Running', podIP: '10.42.0.7', podIPs: [{ ip: '10.42.0.7' }] },
    },
  },
  Service: {
    type: SERVICE_FIELDS,
    whole: {
      spec: {
        type: 'ClusterIP',
        clusterIP: 'None',
        clusterIPs: ['None'],
        ipFamilies: ['IPv4'],
        ports: [
          { name: 'http', protocol: 'TCP', port: 80, targetPort: 'web' },
          { name: 'dns', port: 53, targetPort: 53 },
        ],
        sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } },
      },
    },
  },
  EndpointSlice: {
    type: ENDPOINT_SLICE_FIELDS,
    whole: {
      addressType: 'IPv4',
      endpoints: [
        {
          addresses: ['10.42.0.7'],
          hostname: 'web-0',
          nodeName: 'gw',
          hints: { forZones: [{ name: 'a' }] },
          conditions: { ready: true },
        },
      ],
      ports: [{ name: 'http', port: 80 }],
    },
  },
  Lease: {
    type: LEASE_FIELDS,
    whole: { spec: { holderIdentity: 'a', leaseDurationSeconds: 15, renewTime: '2026-11-29T04:00:00.000000Z' } },
  },
}

/** The object with one part, at any depth, replaced. */
function* spoiltForms(value: unknown): Generator {
  yield* SPOILT
  if (typeof value !== 'object' || value === null) return
  for (const [key, part] of Object.entries(value)) {
    for (const form of spoiltForms(part)) {
      yield Array.isArray(value) ? value.with(Number(key), form) : { ...value, [key]: form }
    }
  }
}

for (const [kind, { type, whole }] of Object.entries(OF_KUBERNETES)) {
  t.test(`${kind} of Kubernetes: readers take what the description takes`, async (t) => {
    const forms = [whole, ...spoiltForms(whole)]
    const taken = forms.filter((form) => type.safeParse(form).success)
    t.ok(type.safeParse(whole).success, 'the description takes the whole object')
    t.ok(taken.length < forms.length, 'and refuses spoilt ones')
    for (const writer of ['ours', 'anyone', 'kubernetes'] as const) {
      const readers = loose(type, writer)
      for (const form of taken)
        t.ok(readers.safeParse(form).success, `${writer}: ${JSON.stringify(form).slice(0, 200)}`)
    }
    t.equal(loose(type).safeParse(7).success, false)
  })
}

t.test('what Kubernetes writes for nothing', async (t) => {
  const slice = { addressType: 'IPv4', endpoints: null, ports: null }
  t.equal(loose(ENDPOINT_SLICE_FIELDS, 'kubernetes').safeParse(slice).success, true)
  t.equal(loose(ENDPOINT_SLICE_FIELDS).safeParse(slice).success, false, 'Sealane writes no null')
  const unnamed = { addressType: 'IPv4', endpoints: [{ addresses: [], hostname: '' }], ports: [{ name: '' }] }
  t.equal(loose(ENDPOINT_SLICE_FIELDS).safeParse(unnamed).success, true)
})

t.test('a condition without a reason, as other programs write it, costs no object', async (t) => {
  const lastTransitionTime = '2026-11-29T04:00:00Z'
  const status = { conditions: [{ type: 'Ready', status: 'True', reason: '', message: '', lastTransitionTime }] }
  t.equal(loose(SERVICE_EXPORT_FIELDS, 'anyone').safeParse({ status }).success, true)
  t.equal(loose(SERVICE_IMPORT_FIELDS, 'anyone').safeParse({ status }).success, true)
  t.equal(SERVICE_EXPORT_FIELDS.safeParse({ status }).success, false, 'the API server refuses it since')
})

t.test('readers take the least that each earlier release has written', async (t) => {
  const connection = {
    cluster: 'tokyo',
    lane: 0,
    endpoint: 'tokyo.gw-lane0',
    state: 'up',
    message: '',
    usingNat: false,
  }
  const lanes = [{ lane: 0, device: 'sealane0', mtu: 1420, driver: 'kernel' }]
  const ranges = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: [], globalCIDRs: [] }
  const least: readonly (readonly [z.ZodObject, object])[] = [
    [GATEWAY_FIELDS, { status: { version: '', lanes, connections: [{ ...connection, rxBytes: 0, txBytes: 0 }] } }],
    [ROUTE_AGENT_FIELDS, { status: { version: '', clusters: [{ cluster: 'tokyo', gateways: [], mtu: 1420 }] } }],
    [CLUSTER_FIELDS, { spec: { id: 'tokyo', index: 0, ...ranges, labels: {} } }],
    [
      ENDPOINT_FIELDS,
      { spec: { cluster: 'tokyo', node: 'gw', lane: 0, publicKey: 'k', candidates: [], capabilities: [] } },
    ],
    [SERVICE_IMPORT_FIELDS, { spec: { type: 'Headless', ports: [] } }],
    [SERVICE_EXPORT_FIELDS, {}],
    [ENDPOINT_SLICE_FIELDS, { addressType: 'IPv4', endpoints: [{ addresses: ['10.42.0.7'], hints: {} }] }],
  ]
  for (const [type, object] of least) {
    t.match(loose(type).safeParse(object), { success: true })
    t.match(loose(type, 'anyone').safeParse(object), { success: true })
  }
})

t.test('a range may have its longest form', async (t) => {
  const longest = 'fd00:0000:0000:0000:0000:0000:192.168.100.0/120'
  t.equal(NODE_FIELDS.safeParse({ spec: { podCIDRs: [longest] } }).success, true)
  t.equal(NODE_FIELDS.safeParse({ spec: { podCIDRs: [`${longest}0`] } }).success, false)
})

t.test('a mirrored slice keeps the words and the ports that readers rely on', async (t) => {
  const takes = (value: object): boolean => loose(ENDPOINT_SLICE_FIELDS).safeParse(value).success
  t.equal(takes({ addressType: 'IPv4', ports: [{ port: 80 }] }), true)
  t.equal(takes({ addressType: 'IPv5' }), false)
  t.equal(takes({ addressType: 'IPv4', ports: [{ port: 0 }] }), false)
  t.equal(takes({ addressType: 'IPv4', ports: [{ protocol: 'tcp' }] }), false)
})

t.test('a part of a description has the fields that are kept, in their order', async (t) => {
  const part = partOf(SERVICE_FIELDS, { spec: { ports: { port: true, name: true }, type: true } })
  const spec = { ports: [{ port: 80, name: 'http' }], type: 'ClusterIP' }
  const { whole } = OF_KUBERNETES['Service'] ?? {}
  t.equal(JSON.stringify(part.parse({ spec: { ...spec, clusterIP: 'None' } })), JSON.stringify({ spec }))
  t.same(Object.keys(part.parse(whole).spec ?? {}), ['ports', 'type'])
  t.equal(part.safeParse({ spec: { ports: [{ port: 0 }] } }).success, false)
  const misspelt: object = { spec: { port: true } }
  t.throws(() => partOf(SERVICE_FIELDS, misspelt), /no field port/)
})

t.test('a type that was not made by the builders has no CRD', async (t) => {
  const [field] = Object.values(loose(MEMBERSHIP_FIELDS).shape)
  t.throws(() => crdSchema(field as z.ZodType), /has no description/)
})
