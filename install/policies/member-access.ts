/**
 * The RBAC rules of each part of a member: only what it reads and writes. Server-side apply needs `patch`, and `create`
 * for an object that does not exist yet.
 */
import { PROPERTY_CLUSTERSET, PROPERTY_CLUSTER_ID, PROPERTY_REGION, PROPERTY_ZONE } from '../../model/model.ts'
import {
  CONSOLE_PORT_NAME,
  CONSOLE_READER,
  IDENTITY_SECRET,
  TOKEN_SECRET,
  type ManifestObject,
  type PartName,
  objectName,
  partLabels,
} from '../values/values.ts'
import type { PartRef } from '../workloads/workloads.ts'

export interface AccessRule {
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

const MANAGED_PROPERTIES = [PROPERTY_CLUSTER_ID, PROPERTY_CLUSTERSET, PROPERTY_REGION, PROPERTY_ZONE]

const AGENT: readonly AccessRule[] = [
  rule('', ['namespaces'], READ),
  // Derived Services; policy sealane-agent-services keeps it from all others.
  rule('', ['services'], [...READ, ...WRITE]),
  // The addresses that machines need outside the lanes are reported to the broker, so that no member's pods get them.
  rule('', ['nodes'], READ),
  rule(SEALANE, ['routeagents'], READ),
  rule(SLICES, ['endpointslices'], [...READ, ...WRITE]),
  rule(MCS, ['serviceexports'], READ),
  rule(MCS, ['serviceexports/status', 'serviceimports/status'], ['patch']),
  rule(MCS, ['serviceimports'], [...READ, ...WRITE]),
  rule(SEALANE, ['gateways'], READ),
  // To whom exports are offered. The agent reports whether a policy is in force.
  rule(SEALANE, ['accesspolicies', 'clusteraccesspolicies'], READ),
  rule(SEALANE, ['accesspolicies/status', 'clusteraccesspolicies/status'], ['patch']),
  // How calls are divided over clusters. The agent reports the shares.
  rule(SEALANE, ['trafficpolicies', 'clustertrafficpolicies'], READ),
  rule(SEALANE, ['trafficpolicies/status', 'clustertrafficpolicies/status'], ['patch']),
  // The agent joins by itself, with the token that it finds.
  rule(SEALANE, ['memberships', 'clusters', 'endpoints'], [...READ, ...WRITE]),
  // For gateways: the agent marks those that have stopped reporting.
  rule(SEALANE, ['clusters/status', 'gateways/status'], ['patch']),
  // The agent manages two ClusterProperties together with the membership, and reads two from the nodes.
  rule(ABOUT, ['clusterproperties'], [...READ, 'create']),
  rule(ABOUT, ['clusterproperties'], ['patch', 'delete'], MANAGED_PROPERTIES),
  rule('events.k8s.io', ['events'], ['create', 'patch']),
]

/**
 * What the agent needs to replace gateway nodes. Policy sealane-agent-nodes restricts it to the gateway label and its
 * annotations.
 */
export const REPLACES_GATEWAYS: AccessRule = rule('', ['nodes'], ['patch'])

/**
 * For a join without a command, where no other program creates the Secret of the identity. RBAC cannot restrict `create` to names,
 * so this right exists only together with policy sealane-agent-identity.
 */
export const CREATES_IDENTITY: AccessRule = rule('', ['secrets'], ['create'])

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
  rule(MCS, ['serviceexports', 'serviceimports'], READ),
  rule(SEALANE, ['memberships', 'clusters', 'endpoints', 'gateways'], READ),
  // They decide which pods may call services of other clusters. Only the pods of the node itself are listed.
  rule('', ['namespaces', 'pods'], READ),
  // They decide which packets of other clusters reach the pods of the node, and where calls of the node go.
  rule(SEALANE, ['accesspolicies', 'clusteraccesspolicies', 'trafficpolicies', 'clustertrafficpolicies'], READ),
  rule(SEALANE, ['routeagents'], [...READ, ...WRITE]),
  rule(SEALANE, ['routeagents/status'], ['patch']),
]

const DNS: readonly AccessRule[] = [
  rule('', ['nodes'], READ),
  rule(SLICES, ['endpointslices'], READ),
  rule(MCS, ['serviceimports'], READ),
  rule(SEALANE, ['memberships', 'clusters', 'gateways'], READ),
  // They say which clusters the answers about headless services have.
  rule(SEALANE, ['clusteraccesspolicies', 'trafficpolicies', 'clustertrafficpolicies'], READ),
]

/** What the page shows, and the objects that explain one path. Nothing is written: a review of a token is answered only. */
const CONSOLE: readonly AccessRule[] = [
  rule('', ['nodes', 'namespaces', 'services', 'pods'], READ),
  rule(SLICES, ['endpointslices'], READ),
  rule(MCS, ['serviceexports', 'serviceimports'], READ),
  rule(SEALANE, ['memberships', 'clusters', 'endpoints', 'gateways', 'routeagents'], READ),
  rule(SEALANE, ['accesspolicies', 'clusteraccesspolicies', 'trafficpolicies', 'clustertrafficpolicies'], READ),
  rule('networking.k8s.io', ['networkpolicies'], READ),
  rule('authentication.k8s.io', ['tokenreviews'], ['create']),
]

/** Only where the broker follows the object (values broker.topologyFrom). */
const BROKER: readonly AccessRule[] = [
  rule(SEALANE, ['topologies'], READ),
  rule(SEALANE, ['topologies/status'], ['patch']),
]

const RULES: Readonly<Partial<Record<PartName, readonly AccessRule[]>>> = {
  agent: AGENT,
  gateway: GATEWAY,
  routeagent: ROUTEAGENT,
  dns: DNS,
  console: CONSOLE,
  broker: BROKER,
}

export const RBAC_GROUP = 'rbac.authorization.k8s.io'

/** The ClusterRole of one part and its binding. `more` are rules that depend on a value. */
export function clusterAccess(
  { part, namespace }: PartRef,
  more: readonly AccessRule[] = [],
): readonly ManifestObject[] {
  const name = objectName(part)
  return [
    {
      apiVersion: `${RBAC_GROUP}/v1`,
      kind: 'ClusterRole',
      metadata: { name, labels: partLabels(part) },
      rules: [...(RULES[part] ?? []), ...more],
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
 * cluster. `more` are rules that depend on a value.
 */
export function agentNamespaceAccess(namespace: string, more: readonly AccessRule[]): readonly ManifestObject[] {
  return namespaceAccess({ part: 'agent', namespace }, [
    rule('', ['secrets'], [...READ, 'update', 'patch'], [IDENTITY_SECRET]),
    rule('', ['secrets'], ['get'], [TOKEN_SECRET]),
    rule('coordination.k8s.io', ['leases'], [...READ, ...WRITE, 'update']),
    ...more,
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

/** Beside the objects of the page: the parts of the installation, and their status pages. */
export function consoleNamespaceAccess(namespace: string): readonly ManifestObject[] {
  return namespaceAccess({ part: 'console', namespace }, [
    rule('coordination.k8s.io', ['leases'], READ),
    rule('apps', ['deployments', 'daemonsets'], READ),
    rule('', ['pods/proxy'], ['get']),
  ])
}

/**
 * Who may read the console: whoever may make a token of this account. The account has no rights, and no pod runs as it.
 * The Role is bound to no one; an administrator needs no binding. A token counts until it ends, an hour at most, also
 * after the right to make it was taken away.
 */
export function consoleReaders(namespace: string): readonly ManifestObject[] {
  const metadata = { name: CONSOLE_READER, namespace, labels: partLabels('console') }
  return [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata, automountServiceAccountToken: false },
    {
      apiVersion: `${RBAC_GROUP}/v1`,
      kind: 'Role',
      metadata,
      rules: [
        rule('', ['serviceaccounts/token'], ['create'], [CONSOLE_READER]),
        rule('', ['services/proxy'], ['get'], [`https:${objectName('console')}:${CONSOLE_PORT_NAME}`]),
      ],
    },
  ]
}

export const CLUSTER_DNS_ROLE = `${objectName('agent')}-cluster-dns`

/**
 * The Role that `sealane join` gives the agent in each namespace where it wired the cluster's own DNS: these ConfigMaps
 * and no others. The policy sealane-agent-cluster-dns restricts what the agent may write to them.
 */
export function clusterDnsAccess(
  maps: readonly { readonly namespace: string; readonly name: string }[],
  agentNamespace: string,
): readonly ManifestObject[] {
  return [...new Set(maps.map(({ namespace }) => namespace))].sort().flatMap((namespace) => {
    const names = maps.filter((map) => map.namespace === namespace).map(({ name }) => name)
    const metadata = { name: CLUSTER_DNS_ROLE, namespace, labels: partLabels('agent') }
    return [
      {
        apiVersion: `${RBAC_GROUP}/v1`,
        kind: 'Role',
        metadata,
        rules: [rule('', ['configmaps'], ['get', 'update'], [...new Set(names)].sort())],
      },
      {
        apiVersion: `${RBAC_GROUP}/v1`,
        kind: 'RoleBinding',
        metadata,
        roleRef: { apiGroup: RBAC_GROUP, kind: 'Role', name: CLUSTER_DNS_ROLE },
        subjects: [{ kind: 'ServiceAccount', name: objectName('agent'), namespace: agentNamespace }],
      },
    ]
  })
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
 * Adds rules for users to the default roles: a user who can edit a namespace can export its Services, and decide to
 * whom. ServiceImports
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
    role(
      'sealane-export',
      ['edit', 'admin'],
      [
        rule(MCS, ['serviceexports'], [...READ, ...WRITE, 'update']),
        rule(SEALANE, ['accesspolicies', 'trafficpolicies'], [...READ, ...WRITE, 'update']),
      ],
    ),
    role(
      'sealane-view',
      ['view', 'edit', 'admin'],
      [
        rule(MCS, ['serviceexports', 'serviceimports'], READ),
        rule(SEALANE, ['clusters', 'endpoints', 'gateways', 'routeagents', 'memberships'], READ),
        rule(SEALANE, ['accesspolicies', 'clusteraccesspolicies'], READ),
        rule(SEALANE, ['trafficpolicies', 'clustertrafficpolicies', 'topologies'], READ),
      ],
    ),
  ]
}
