/**
 * The fields of mirrored and reported objects that the components depend on. Sealane wrote them, but a disk error or a
 * manual edit may have damaged them since.
 */
import type { z } from 'zod'
import {
  ACCESS_POLICY_FIELDS,
  BACKEND_HEALTH,
  CLUSTER_ACCESS_POLICY_FIELDS,
  CLUSTER_FIELDS,
  CLUSTER_TRAFFIC_POLICY_FIELDS,
  ENDPOINT_FIELDS,
  ENDPOINT_SLICE_FIELDS,
  GATEWAY_FIELDS,
  MEMBERSHIP_FIELDS,
  ROUTE_AGENT_FIELDS,
  SERVICE_EXPORT_FIELDS,
  SERVICE_IMPORT_FIELDS,
  TOPOLOGY_OBJECT_FIELDS,
  TRAFFIC_POLICY_FIELDS,
  loose,
} from '../kinds/kinds.ts'
import type { Kind } from '../model.ts'

/** Shapes of what apply() writes. A kind that is not listed may have any spec. */
export const SPEC_SHAPES: Readonly<Partial<Record<Kind, z.ZodType>>> = {
  EndpointSlice: loose(ENDPOINT_SLICE_FIELDS),
  ServiceImport: loose(SERVICE_IMPORT_FIELDS).pick({ spec: true }),
  Cluster: loose(CLUSTER_FIELDS).pick({ spec: true }),
  Endpoint: loose(ENDPOINT_FIELDS),
  Membership: loose(MEMBERSHIP_FIELDS),
}

/** Shapes of statuses. A kind that is not listed may have any status. */
export const STATUS_SHAPES: Readonly<Partial<Record<Kind, z.ZodType>>> = {
  EndpointSlice: loose(BACKEND_HEALTH),
  ServiceExport: loose(SERVICE_EXPORT_FIELDS).shape.status,
  ServiceImport: loose(SERVICE_IMPORT_FIELDS).shape.status,
  Cluster: loose(CLUSTER_FIELDS).shape.status,
  Gateway: loose(GATEWAY_FIELDS).shape.status,
  RouteAgent: loose(ROUTE_AGENT_FIELDS).shape.status,
  AccessPolicy: loose(ACCESS_POLICY_FIELDS).shape.status,
  ClusterAccessPolicy: loose(CLUSTER_ACCESS_POLICY_FIELDS).shape.status,
  TrafficPolicy: loose(TRAFFIC_POLICY_FIELDS).shape.status,
  ClusterTrafficPolicy: loose(CLUSTER_TRAFFIC_POLICY_FIELDS).shape.status,
  Topology: loose(TOPOLOGY_OBJECT_FIELDS).shape.status,
}
