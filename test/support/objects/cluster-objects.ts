/** The objects of a clusterset for tests: its members, their gateways, and whether this site is a member. */
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

/** A cluster that has the number 1 and no addresses, unless the spec says otherwise. */
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

/** The Endpoint of node gw on lane 0, which cannot be called, unless the spec says otherwise. */
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

/** A Membership by which milano has joined, whose broker has stated the default, unless the spec says otherwise. */
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
      accessDefault: 'allow',
      ...spec,
    },
  }
}
