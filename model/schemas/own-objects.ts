/**
 * The fields of mirrored and reported objects that the components depend on. Sealane wrote them, but a disk error or a
 * manual edit may have damaged them since.
 */
import type { z } from 'zod'
import {
  CLUSTER_FIELDS,
  ENDPOINT_FIELDS,
  GATEWAY_FIELDS,
  MEMBERSHIP_FIELDS,
  ROUTE_AGENT_FIELDS,
  SERVICE_EXPORT_FIELDS,
  SERVICE_IMPORT_FIELDS,
  list,
  loose,
  map,
} from '../kinds/kinds.ts'
import type { Kind } from '../model.ts'
import { flag, oneOf, port, text } from './fields.ts'

const protocol = oneOf('TCP', 'UDP', 'SCTP')

const endpointSlice = map({
  addressType: oneOf('IPv4', 'IPv6', 'FQDN'),
  endpoints: list(
    map({
      addresses: list(text),
      hostname: text.optional(),
      nodeName: text.optional(),
      zone: text.optional(),
      conditions: map({ ready: flag.optional(), serving: flag.optional(), terminating: flag.optional() }).optional(),
    }),
  ).optional(),
  ports: list(map({ name: text.optional(), protocol: protocol.optional(), port: port.optional() })).optional(),
})

/** Shapes of what apply() writes. A kind that is not listed may have any spec. */
export const SPEC_SHAPES: Readonly<Partial<Record<Kind, z.ZodType>>> = {
  EndpointSlice: endpointSlice,
  ServiceImport: loose(SERVICE_IMPORT_FIELDS).pick({ spec: true }),
  Cluster: loose(CLUSTER_FIELDS).pick({ spec: true }),
  Endpoint: loose(ENDPOINT_FIELDS),
  Membership: loose(MEMBERSHIP_FIELDS),
}

/** Shapes of statuses. A kind that is not listed may have any status. */
export const STATUS_SHAPES: Readonly<Partial<Record<Kind, z.ZodType>>> = {
  ServiceExport: loose(SERVICE_EXPORT_FIELDS).shape.status,
  ServiceImport: loose(SERVICE_IMPORT_FIELDS).shape.status,
  Cluster: loose(CLUSTER_FIELDS).shape.status,
  Gateway: loose(GATEWAY_FIELDS).shape.status,
  RouteAgent: loose(ROUTE_AGENT_FIELDS).shape.status,
}
