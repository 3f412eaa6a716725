/** A clusterset as objects for tests: its members, their gateways, and whether this site is one. */
import {
  type Cluster,
  type ClusterSpec,
  type Endpoint,
  type EndpointSpec,
  MEMBERSHIP_NAME,
  type Membership,
  type ObjectMeta,
  endpointName,
} from '../../../model/objects.ts'

/** Number 1, without addresses, unless the spec says so. */
export function clusterObject(
  spec: Partial<ClusterSpec> & Pick<ClusterSpec, 'id'>,
  { metadata = {}, ...status }: { readonly metadata?: Partial<ObjectMeta> } & Pick<Cluster, 'status'> = {},
): Cluster {
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Cluster',
    metadata: { name: spec.id, ...metadata },
    spec: { index: 1, podCIDRs: [], serviceCIDRs: [], globalCIDRs: [], labels: {}, ...spec },
    ...status,
  }
}

/** Of node gw on lane 0, and nobody can call it, unless the spec says so. */
export function endpointObject(
  spec: Partial<EndpointSpec> & Pick<EndpointSpec, 'cluster'>,
  metadata: Partial<ObjectMeta> = {},
): Endpoint {
  const whole = { node: 'gw', lane: 0, publicKey: `${'k'.repeat(42)}A=`, candidates: [], capabilities: [], ...spec }
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Endpoint',
    metadata: { name: endpointName(whole.cluster, whole.node, whole.lane), ...metadata },
    spec: whole,
  }
}

/** Milano has joined, unless the spec says otherwise. */
export function membershipObject(spec: Partial<Membership['spec']> = {}): Membership {
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Membership',
    metadata: { name: MEMBERSHIP_NAME },
    spec: {
      clusterId: 'milano',
      phase: 'joined',
      clusterset: 'demo',
      globalRange: '244.0.0.0/8',
      clustersetIpRange: '245.0.0.0/16',
      ...spec,
    },
  }
}
