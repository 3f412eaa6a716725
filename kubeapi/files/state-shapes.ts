/**
 * What the state's files must look like before they are believed: the fields that the components go by. Sealane
 * wrote them, but a disk or a hand may have spoilt them since, and no process may end over that.
 */
import type { z } from 'zod'
import type { Kind } from '../../model/objects.ts'
import { cidr, dnsLabel, flag, integer, list, map, oneOf, port, text, textMap } from './fields.ts'
import { pathText } from './user/yaml-source.ts'

/** `object`: what apply() was given; `status`; `user`: what is known of a user's object beyond its YAML. */
export type StatePart = 'object' | 'status' | 'user'

const LARGEST = Number.MAX_SAFE_INTEGER
const count = integer(0, LARGEST)
const protocol = oneOf('TCP', 'UDP', 'SCTP')
const texts = list(text)

const endpointSlice = map({
  addressType: oneOf('IPv4', 'IPv6', 'FQDN'),
  endpoints: list(
    map({
      addresses: texts,
      hostname: text.optional(),
      nodeName: text.optional(),
      zone: text.optional(),
      conditions: map({ ready: flag.optional(), serving: flag.optional(), terminating: flag.optional() }).optional(),
    }),
  ).optional(),
  ports: list(map({ name: text.optional(), protocol: protocol.optional(), port: port.optional() })).optional(),
})

const serviceImport = map({
  spec: map({
    type: oneOf('ClusterSetIP', 'Headless'),
    ports: list(map({ name: text.optional(), protocol, port })),
    ips: texts.optional(),
  }),
})

const cluster = map({
  spec: map({ id: text, index: count, podCIDRs: texts, serviceCIDRs: texts, globalCIDRs: texts, labels: textMap }),
})

const endpoint = map({
  spec: map({
    cluster: text,
    node: text,
    lane: integer(0, 255),
    publicKey: text,
    nextPublicKey: text.optional(),
    candidates: list(map({ kind: text, address: text, port })),
    capabilities: texts,
  }),
})

const membership = map({
  spec: map({ clusterId: dnsLabel, phase: oneOf('joined', 'leaving'), globalRange: cidr, clustersetIpRange: cidr }),
})

const SPECS: Readonly<Partial<Record<Kind, z.ZodType>>> = {
  EndpointSlice: endpointSlice,
  ServiceImport: serviceImport,
  Cluster: cluster,
  Endpoint: endpoint,
  Membership: membership,
}

const conditions = map({ conditions: list(map({ type: text, status: text })).optional() })
const gateway = map({
  lanes: list(map({ lane: count, mtu: count })),
  connections: list(map({ cluster: text, lane: count, state: oneOf('connecting', 'up', 'down') })),
  heartbeatTime: text.optional(),
  conditions: list(map({ type: text, status: text })).optional(),
})
const routeAgent = map({
  clusters: list(map({ cluster: text, gateways: texts, mtu: count })),
  silentNodes: texts.optional(),
  conditions: list(map({ type: text, status: text })).optional(),
})

const STATUSES: Readonly<Partial<Record<Kind, z.ZodType>>> = {
  ServiceExport: conditions,
  ServiceImport: conditions,
  Cluster: conditions,
  Gateway: gateway,
  RouteAgent: routeAgent,
}

const metadata = map({ name: text, namespace: text.optional(), labels: textMap.optional() })
const base = map({ kind: text, metadata })
const note = map({ uid: text, creationTimestamp: text, generation: count, specHash: text })
const anyStatus = map({ uid: text })
const STORED_STATUSES = new Map(
  Object.entries(STATUSES).map(([kind, status]) => [kind, map({ uid: text, status: status.optional() })]),
)

/** What is wrong with the value of a state file, naming the field and what was expected; undefined: nothing. */
export function shapeComplaint(kind: Kind, part: StatePart, value: object): string | undefined {
  if (part === 'user') return complaintOf(note, value)
  if (part === 'status') return complaintOf(STORED_STATUSES.get(kind) ?? anyStatus, value)
  const complaint = complaintOf(base, value)
  if (complaint !== undefined) return complaint
  if ((value as { kind: string }).kind !== kind) return `kind: expected ${kind}`
  const spec = SPECS[kind]
  return spec === undefined ? undefined : complaintOf(spec, value)
}

/** The first thing that is wrong with a value, naming the field and what was expected; undefined: nothing. */
export function complaintOf(schema: z.ZodType, value: object): string | undefined {
  const issue = schema.safeParse(value).error?.issues[0]
  return issue === undefined ? undefined : `${pathText(issue.path)}: expected ${issue.message}`
}
