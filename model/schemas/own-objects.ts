/**
 * The fields of mirrored and reported objects that the components depend on. Sealane wrote them, but a disk error or a
 * manual edit may have damaged them since.
 */
import type { z } from 'zod'
import { MAX_ADDRESSED_LANE } from '../addresses/addresses.ts'
import type { Kind } from '../model.ts'
import { cidr, dnsLabel, flag, integer, list, map, oneOf, port, text, textMap } from './fields.ts'

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
    lane: integer(0, MAX_ADDRESSED_LANE),
    publicKey: text,
    nextPublicKey: text.optional(),
    candidates: list(map({ kind: text, address: text, port })),
    capabilities: texts,
  }),
})

const membership = map({
  spec: map({ clusterId: dnsLabel, phase: oneOf('joined', 'leaving'), globalRange: cidr, clustersetIpRange: cidr }),
})

/** Shapes of what apply() writes. A kind that is not listed may have any spec. */
export const SPEC_SHAPES: Readonly<Partial<Record<Kind, z.ZodType>>> = {
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

/** Shapes of statuses. A kind that is not listed may have any status. */
export const STATUS_SHAPES: Readonly<Partial<Record<Kind, z.ZodType>>> = {
  ServiceExport: conditions,
  ServiceImport: conditions,
  Cluster: conditions,
  Gateway: gateway,
  RouteAgent: routeAgent,
}
