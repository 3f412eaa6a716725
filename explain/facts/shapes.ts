/**
 * The shapes of usable facts: the loose forms of the descriptions in model/kinds, of kinds that others write the fields
 * alone that checks read. What only checks read is described here.
 */
import { z } from 'zod'
import {
  BACKEND_HEALTH,
  CLUSTER_FIELDS,
  ENDPOINT_FIELDS,
  ENDPOINT_SLICE_FIELDS,
  GATEWAY_FIELDS,
  LEASE_FIELDS,
  MAX_READ_NAME,
  MAX_TEXT,
  MEMBERSHIP_FIELDS,
  METADATA,
  NODE_FIELDS,
  POD_FIELDS,
  ROUTE_AGENT_FIELDS,
  SERVICE_EXPORT_FIELDS,
  SERVICE_FIELDS,
  SERVICE_IMPORT_FIELDS,
  TRAFFIC_POLICY_FIELDS,
  loose,
  partOf,
} from '../../model/kinds/kinds.ts'
import { PROBE_KINDS, PROBE_SHAPES, type ProbeKind } from './probe-shapes.ts'

/** The limit of a text in an object. Names and messages of Sealane are shorter. */
const text = z.string().max(MAX_TEXT)
const name = z.string().min(1).max(MAX_READ_NAME)
const count = z.number().int().nonnegative()
const texts = z.array(text)
const textMap = z.record(z.string(), text)

const metadata = loose(
  partOf(METADATA, {
    name: true,
    namespace: true,
    labels: true,
    annotations: true,
    creationTimestamp: true,
    deletionTimestamp: true,
  }),
  'anyone',
)
const inNamespace = metadata.required({ namespace: true })

/** Conditions of other programs may have fewer fields. */
const foreignCondition = z.looseObject({
  type: name,
  status: z.enum(['True', 'False', 'Unknown']),
  reason: text.optional(),
  message: text.optional(),
  lastTransitionTime: text.nullish(),
})
const foreignConditions = z.array(foreignCondition).nullish()

const { spec: nodeSpec, status: nodeStatus } = partOf(NODE_FIELDS, {
  spec: { unschedulable: true, taints: true },
  status: { addresses: true },
}).shape
const node = z.looseObject({
  metadata,
  spec: loose(nodeSpec, 'anyone'),
  status: loose(nodeStatus.unwrap(), 'anyone').extend({ conditions: foreignConditions }).optional(),
})
export type NodeConditions = Pick<z.infer<typeof node>, 'status'>

const containerState = z.looseObject({
  waiting: z.looseObject({ reason: text.optional(), message: text.optional() }).nullish(),
  terminated: z.looseObject({ reason: text.optional(), message: text.optional(), exitCode: z.number() }).nullish(),
})

const { spec: podSpec, status: podStatus } = partOf(POD_FIELDS, {
  spec: { nodeName: true, hostNetwork: true },
  status: { phase: true, podIP: true },
}).shape
const pod = z.looseObject({
  metadata: inNamespace,
  spec: loose(podSpec.unwrap(), 'anyone')
    .extend({ containers: z.array(z.looseObject({ image: text.optional() })).optional() })
    .optional(),
  status: loose(podStatus.unwrap(), 'anyone')
    .extend({
      conditions: foreignConditions,
      containerStatuses: z
        .array(
          z.looseObject({
            ready: z.boolean().optional(),
            restartCount: count.optional(),
            state: containerState.optional(),
          }),
        )
        .nullish(),
    })
    .optional(),
})
export type Pod = z.infer<typeof pod>

const workload = z.looseObject({
  metadata: inNamespace,
  spec: z
    .looseObject({
      replicas: count.nullish(),
      template: z.looseObject({
        spec: z.looseObject({ containers: z.array(z.looseObject({ image: text.optional() })) }),
      }),
    })
    .optional(),
  status: z
    .looseObject({
      replicas: count.nullish(),
      readyReplicas: count.nullish(),
      desiredNumberScheduled: count.nullish(),
      numberReady: count.nullish(),
      conditions: foreignConditions,
    })
    .optional(),
})
export type Workload = z.infer<typeof workload>

const portName = z.union([count, text]).nullish()

const { spec: serviceSpec } = partOf(SERVICE_FIELDS, {
  spec: { type: true, ipFamilies: true, ports: { protocol: true, port: true, targetPort: true } },
}).shape
const service = z.looseObject({
  metadata: inNamespace,
  spec: loose(serviceSpec.unwrap(), 'kubernetes').extend({ selector: textMap.nullish() }).optional(),
})
export type ServiceFact = z.infer<typeof service>

const labelSelector = z.looseObject({
  matchLabels: textMap.nullish(),
  matchExpressions: z.array(z.looseObject({ key: text, operator: text, values: texts.nullish() })).nullish(),
})
export type LabelSelector = z.infer<typeof labelSelector>

const policyPorts = z
  .array(z.looseObject({ protocol: text.nullish(), port: portName, endPort: count.nullish() }))
  .nullish()
const policyPeers = z
  .array(z.looseObject({ ipBlock: z.looseObject({ cidr: text, except: texts.nullish() }).nullish() }))
  .nullish()

const networkPolicy = z.looseObject({
  metadata: inNamespace,
  spec: z
    .looseObject({
      podSelector: labelSelector.nullish(),
      policyTypes: texts.nullish(),
      ingress: z.array(z.looseObject({ from: policyPeers, ports: policyPorts })).nullish(),
      egress: z.array(z.looseObject({ to: policyPeers, ports: policyPorts })).nullish(),
    })
    .optional(),
})
export type NetworkPolicy = z.infer<typeof networkPolicy>

/** The condition alone: a policy of a later release may have other fields. */
const trafficPolicy = loose(partOf(TRAFFIC_POLICY_FIELDS, { status: { conditions: true } }), 'anyone')

/** Shapes by kind. */
export const OBJECT_SHAPES = {
  Membership: loose(MEMBERSHIP_FIELDS, 'anyone').extend({ metadata }),
  Cluster: loose(CLUSTER_FIELDS, 'anyone').extend({ metadata }),
  Endpoint: loose(ENDPOINT_FIELDS, 'anyone').extend({ metadata }),
  Gateway: loose(GATEWAY_FIELDS, 'anyone').extend({ metadata }),
  RouteAgent: loose(ROUTE_AGENT_FIELDS, 'anyone').extend({ metadata }),
  Node: node,
  // No check reads the spec, and a bundle must not contain the annotations in it.
  ServiceExport: loose(SERVICE_EXPORT_FIELDS, 'anyone').omit({ spec: true }).extend({ metadata: inNamespace }),
  ServiceImport: loose(SERVICE_IMPORT_FIELDS, 'anyone').required({ spec: true }).extend({ metadata: inNamespace }),
  EndpointSlice: loose(
    partOf(ENDPOINT_SLICE_FIELDS, { endpoints: { conditions: { ready: true, serving: true } } }),
    'kubernetes',
  ).extend({ metadata: inNamespace, status: loose(partOf(BACKEND_HEALTH, { backends: true }), 'anyone').optional() }),
  Lease: loose(
    partOf(LEASE_FIELDS, { spec: { holderIdentity: true, leaseDurationSeconds: true, renewTime: true } }),
    'kubernetes',
  ).extend({ metadata }),
  Pod: pod,
  Deployment: workload,
  DaemonSet: workload,
  NetworkPolicy: networkPolicy,
  Service: service,
  TrafficPolicy: trafficPolicy.extend({ metadata: inNamespace }),
  ClusterTrafficPolicy: trafficPolicy.extend({ metadata }),
} as const satisfies Readonly<Record<string, z.ZodType>>

/** The kinds that checks read. */
export type FactKind = keyof typeof OBJECT_SHAPES

export const FACT_KINDS = Object.keys(OBJECT_SHAPES) as readonly FactKind[]

/** The acting agent's connection to the broker. */
const brokerReport = z.looseObject({
  publish: z.enum(['closed', 'waiting', 'connecting', 'declaring', 'live']),
  watch: z.enum(['closed', 'waiting', 'connecting', 'syncing', 'live']),
  /** RFC 3339 time since when both are live, or not. */
  since: text,
  /** Why there is no connection. */
  reason: name.optional(),
  /** Why the broker refuses the facts that the cluster states. */
  factsRefused: name.optional(),
  /** RFC 3339 time of the broker's last message. Absent if there was none since the process started. */
  heardAt: text.optional(),
  /** The number of known broker addresses, and how many of them failed at the last attempt. */
  addresses: count,
  failing: count,
  /** RFC 3339 time at which the certificate expires. */
  certificateEnds: text.optional(),
  /** The shortest time that the broker took to confirm one of the last three changes. */
  answeredMs: z.number().nonnegative().optional(),
  /** How far the broker's clock is ahead of the agent's, negative if it is behind. */
  aheadMs: z.number().int().optional(),
})
export type BrokerReport = z.infer<typeof brokerReport>

/** What the API server refuses to a part. */
const refusal = z.looseObject({
  code: name,
  /** The refused action, such as `patch gateways.sealane.io/status`. */
  what: text,
  /** The refusing instance, such as `webhook deny.example.com`. */
  by: text.optional(),
  /** The number of objects or lists that the refusal affects. */
  places: count,
  /** RFC 3339 times of the first and the last refusal. */
  since: text,
  last: text,
})
export type RefusalReport = z.infer<typeof refusal>

/** The agent's latest check of all imported services. */
const importsReport = z.looseObject({
  /** The number of exported services without a ready and reachable pod. */
  withoutBackends: count,
  /** RFC 3339 time by the agent's clock. */
  at: text,
})
export type ImportsReport = z.infer<typeof importsReport>

export const PART_REPORT_SHAPE = z.looseObject({
  /** `agent`, `dns`; `site` for one process with several parts; `cli` for the running command. */
  part: name,
  /** The pod, or the address that was asked. */
  name: text,
  version: name,
  ready: z.boolean(),
  /** RFC 3339 time. */
  startedAt: text.optional(),
  /** RFC 3339 time of the answer, by the part's clock. */
  now: text.optional(),
  /** Set by the acting agent. */
  broker: brokerReport.optional(),
  /** The number of its open files, and their limit. */
  files: z.looseObject({ used: count, limit: count }).optional(),
  /** Exports of other members that are not imported here, by reason. Set by the acting agent. */
  notImported: z.record(z.string(), count).optional(),
  /** Set by the acting agent. */
  imports: importsReport.optional(),
  /** Set in a Kubernetes cluster. */
  refused: z.array(refusal).max(100).optional(),
  /** The reason of the broker's last refusal. Set by an agent that has not joined. */
  joinRefused: name.optional(),
})
export type PartReport = z.infer<typeof PART_REPORT_SHAPE>

const origin = { source: text, at: z.iso.datetime({ offset: true }) }

/** The items of `objects` are validated one by one, so that a malformed one does not affect the others. */
export const factShape = z.discriminatedUnion('t', [
  z.looseObject({
    t: z.literal('objects'),
    ...origin,
    kind: z.enum(FACT_KINDS as [FactKind]),
    items: z.array(z.unknown()),
  }),
  z.looseObject({ t: z.literal('report'), ...origin, report: PART_REPORT_SHAPE }),
  z.looseObject({
    t: z.literal('probe'),
    ...origin,
    kind: z.enum(PROBE_KINDS as [ProbeKind]),
    items: z.array(z.unknown()),
  }),
  z.looseObject({
    t: z.literal('unanswered'),
    ...origin,
    what: text,
    reason: z.enum([
      'RightMissing',
      'KindMissing',
      'NotAnswered',
      'NotReadable',
      'NothingRuns',
      'DiskFull',
      'DiskReadOnly',
    ]),
    message: text,
    needed: z.boolean(),
  }),
])

export const factSetShape = z.looseObject({
  format: z.literal(1),
  takenAt: z.iso.datetime({ offset: true }),
  target: text,
  facts: z.array(z.unknown()),
})

// The fields of facts as JSON schemas, for code that decides which of them go into a file.

/** The part of a JSON schema that lists fields. */
export interface FieldSchema {
  readonly properties?: Readonly<Record<string, FieldSchema>>
  readonly items?: FieldSchema
  readonly additionalProperties?: unknown
  readonly anyOf?: readonly FieldSchema[]
}

/** The schema of a part's report. */
export function reportSchema(): FieldSchema {
  return schemaOf(PART_REPORT_SHAPE)
}

/** The schema of an item of each kind of probe. */
export function probeSchema(kind: ProbeKind): FieldSchema {
  return schemaOf(PROBE_SHAPES[kind])
}

/** The schema of what checks read of an object of a kind. */
export function objectSchema(kind: FactKind): FieldSchema {
  return schemaOf(OBJECT_SHAPES[kind])
}

/** The shapes here use nothing that a JSON schema cannot express. */
function schemaOf(shape: z.ZodType): FieldSchema {
  return z.toJSONSchema(shape) as FieldSchema
}
