/**
 * The RBAC rules of each part of a member: only what it reads and writes. Server-side apply needs `patch`, and `create`
 * for an object that does not exist yet.
 */
import { PROPERTY_CLUSTERSET, PROPERTY_CLUSTER_ID } from '../../model/model.ts'
import { IDENTITY_SECRET, type ManifestObject, type PartName, objectName, partLabels } from '../values/values.ts'
import type { PartRef } from '../workloads/workloads.ts'

interface AccessRule {
  readonly apiGroups: readonly string[]
  readonly resources: readonly string[]
  readonly verbs: readonly string[]
  readonly resourceNames?: readonly string[]
}

const READ = ['get', 'list', 'watch']
const WRITE = ['create', 'patch', 'delete']

function rule(group: string, resources: readonly string[], verbs: readonly string[], names?: string[]): AccessRule {
  return { apiGroups: [group], resources, verbs, ...(names === undefined ? {} : { resourceNames: names }) }
}

const SEALANE = 'sealane.io'
const MCS = 'multicluster.x-k8s.io'
const SLICES = 'discovery.k8s.io'
const ABOUT = 'about.k8s.io'

const AGENT: readonly AccessRule[] = [
  rule('', ['namespaces', 'services'], READ),
  // The addresses that machines need outside the lanes are reported to the broker, so that no member's pods get them.
  rule('', ['nodes'], READ),
  rule(SEALANE, ['routeagents'], READ),
  rule(SLICES, ['endpointslices'], [...READ, ...WRITE]),
  rule(MCS, ['serviceexports'], READ),
  rule(MCS, ['serviceexports/status', 'serviceimports/status'], ['patch']),
  rule(MCS, ['serviceimports'], [...READ, ...WRITE]),
  rule(SEALANE, ['gateways'], READ),
  // The agent joins by itself, with the token that it finds.
  rule(SEALANE, ['memberships', 'clusters', 'endpoints'], [...READ, ...WRITE]),
  // For gateways: the agent marks those that have stopped reporting.
  rule(SEALANE, ['clusters/status', 'gateways/status'], ['patch']),
  // The agent manages both ClusterProperties of the About API together with the membership.
  rule(ABOUT, ['clusterproperties'], [...READ, 'create']),
  rule(ABOUT, ['clusterproperties'], ['patch', 'delete'], [PROPERTY_CLUSTER_ID, PROPERTY_CLUSTERSET]),
  rule('events.k8s.io', ['events'], ['create', 'patch']),
]

const GATEWAY: readonly AccessRule[] = [
  rule('', ['nodes'], READ),
  rule(SEALANE, ['memberships', 'clusters', 'routeagents'], READ),
  rule(SEALANE, ['endpoints', 'gateways'], [...READ, ...WRITE]),
  rule(SEALANE, ['gateways/status'], ['patch']),
  rule('events.k8s.io', ['events'], ['create', 'patch']),
]

const ROUTEAGENT: readonly AccessRule[] = [
  rule('', ['nodes'], READ),
  rule(SLICES, ['endpointslices'], READ),
  rule(MCS, ['serviceimports'], READ),
  rule(SEALANE, ['memberships', 'clusters', 'endpoints', 'gateways'], READ),
  rule(SEALANE, ['routeagents'], [...READ, ...WRITE]),
  rule(SEALANE, ['routeagents/status'], ['patch']),
]

const DNS: readonly AccessRule[] = [
  rule('', ['nodes'], READ),
  rule(SLICES, ['endpointslices'], READ),
  rule(MCS, ['serviceimports'], READ),
  rule(SEALANE, ['memberships', 'clusters', 'gateways'], READ),
]

const RULES: Readonly<Partial<Record<PartName, readonly AccessRule[]>>> = {
  agent: AGENT,
  gateway: GATEWAY,
  routeagent: ROUTEAGENT,
  dns: DNS,
}

export const RBAC_GROUP = 'rbac.authorization.k8s.io'

/** The ClusterRole of one part and its binding. */
export function clusterAccess({ part, namespace }: PartRef): readonly ManifestObject[] {
  const name = objectName(part)
  return [
    {
      apiVersion: `${RBAC_GROUP}/v1`,
      kind: 'ClusterRole',
      metadata: { name, labels: partLabels(part) },
      rules: RULES[part] ?? [],
    },
    {
      apiVersion: `${RBAC_GROUP}/v1`,
      kind: 'ClusterRoleBinding',
      metadata: { name, labels: partLabels(part) },
      roleRef: { apiGroup: RBAC_GROUP, kind: 'ClusterRole', name },
      subjects: [{ kind: 'ServiceAccount', name, namespace }],
    },
  ]
}

/**
 * Only the agent reads and renews the cluster's identity, takes part in the election, and keeps a Lease for each other
 * cluster.
 */
export function agentNamespaceAccess(namespace: string): readonly ManifestObject[] {
  return namespaceAccess({ part: 'agent', namespace }, [
    rule('', ['secrets'], [...READ, 'update', 'patch'], [IDENTITY_SECRET]),
    rule('coordination.k8s.io', ['leases'], [...READ, ...WRITE, 'update']),
  ])
}

/**
 * Gateways use Leases to agree which node serves a lane. An admission policy restricts the names, since RBAC cannot
 * restrict `create` to names.
 */
export function gatewayNamespaceAccess(namespace: string): readonly ManifestObject[] {
  return namespaceAccess({ part: 'gateway', namespace }, [
    rule('coordination.k8s.io', ['leases'], [...READ, 'create', 'update']),
  ])
}

function namespaceAccess({ part, namespace }: PartRef, rules: readonly AccessRule[]): readonly ManifestObject[] {
  const name = objectName(part)
  const labels = partLabels(part)
  return [
    {
      apiVersion: `${RBAC_GROUP}/v1`,
      kind: 'Role',
      metadata: { name, namespace, labels },
      rules,
    },
    {
      apiVersion: `${RBAC_GROUP}/v1`,
      kind: 'RoleBinding',
      metadata: { name, namespace, labels },
      roleRef: { apiGroup: RBAC_GROUP, kind: 'Role', name },
      subjects: [{ kind: 'ServiceAccount', name, namespace }],
    },
  ]
}

/**
 * Adds rules for users to the default roles: a user who can edit a namespace can export its Services. ServiceImports
 * are read-only (KEP-1645: only the controller manages them).
 */
export function userAccess(): readonly ManifestObject[] {
  const role = (name: string, aggregate: readonly string[], rules: readonly AccessRule[]): ManifestObject => {
    const labels = aggregate.map((to) => [`${RBAC_GROUP}/aggregate-to-${to}`, 'true'])
    return {
      apiVersion: `${RBAC_GROUP}/v1`,
      kind: 'ClusterRole',
      metadata: {
        name,
        labels: { ...partLabels(undefined), ...(Object.fromEntries(labels) as Record<string, string>) },
      },
      rules,
    }
  }
  return [
    role('sealane-export', ['edit', 'admin'], [rule(MCS, ['serviceexports'], [...READ, ...WRITE, 'update'])]),
    role(
      'sealane-view',
      ['view', 'edit', 'admin'],
      [
        rule(MCS, ['serviceexports', 'serviceimports'], READ),
        rule(SEALANE, ['clusters', 'endpoints', 'gateways', 'routeagents', 'memberships'], READ),
      ],
    ),
  ]
}
