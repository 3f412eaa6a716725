/** The descriptions of TrafficPolicy and ClusterTrafficPolicy: how the calls of a cluster are divided over clusters. */
import type { z } from 'zod'
import {
  MAX_AFFINITY_SECONDS,
  MAX_POLICY_CALLERS,
  MAX_POLICY_ENTRIES,
  MAX_REPORTED_PORTS,
  MAX_REPORTED_PORT_GROUPS,
  MAX_REPORTED_PORT_SHARES,
  MAX_REPORTED_SERVICES,
  MAX_REPORTED_SHARES,
  MAX_TRAFFIC_TIERS,
  MAX_TRAFFIC_WEIGHT,
} from '../values/values.ts'
import { labelSelector } from './access-policy.ts'
import { propertySelector } from './cluster-selectors.ts'
import { CONDITIONS } from './conditions.ts'
import { type Rule, anyInteger, choice, dnsLabel, integer, integerMap, list, map, object, text } from './fields.ts'
import { versionInForce } from './policy-version.ts'

/** What a tier consists of: exactly one of these fields is set. */
const TIER_KINDS = ['local', 'clusters', 'selector', 'any'] as const
const ONE_OF_TIER = `exactly one of ${TIER_KINDS.join(', ')}`

/** A rule that at least one of two maps or lists has an entry. */
const notEmpty = (one: string, other: string): Rule => ({
  rule: [one, other].map((field) => `has(self.${field}) && size(self.${field}) > 0`).join(' || '),
  message: `expected at least one entry in ${one} or ${other}`,
})

/**
 * What the fields of a tier say of each other. trafficPolicyProblem() says the same where an API server has no such
 * rule. Keys of a map have no limit that the cost of a rule could follow, so their grammar is checked there alone.
 */
const TIER_RULES: readonly Rule[] = [
  {
    rule: `[${TIER_KINDS.map((kind) => `has(self.${kind})`).join(', ')}].filter(one, one).size() == 1`,
    message: `expected ${ONE_OF_TIER}`,
  },
  { rule: '!has(self.clusters) || size(self.clusters) > 0', message: 'clusters: expected at least one id' },
  {
    rule: '!has(self.clusters) || !has(self.weights) || self.weights.all(id, id in self.clusters)',
    message: 'weights: expected ids of clusters',
  },
  {
    rule: '!has(self.clusters) || !has(self.weights) || !self.clusters.all(id, id in self.weights && self.weights[id] == 0)',
    message: 'weights: expected at least one above 0, or an id without a weight',
  },
]

const TIER = map(
  {
    local: map({}, 'This cluster.').optional(),
    clusters: list(dnsLabel('Id of a member.'), 'Ids of members.', MAX_POLICY_CALLERS).optional(),
    selector: map(
      {
        labels: labelSelector('Labels of the members, as in their Cluster objects.', [
          notEmpty('matchLabels', 'matchExpressions'),
        ]).optional(),
        properties: propertySelector('ClusterProperties of the members.', [
          notEmpty('matchProperties', 'matchExpressions'),
        ]).optional(),
      },
      'Members that meet both fields. A value @SameAsImporter@ is that of this cluster.',
      {
        'x-kubernetes-validations': [
          { rule: 'has(self.labels) || has(self.properties)', message: 'expected labels or properties' },
        ],
      },
    ).optional(),
    any: map({}, 'All clusters that export the service.').optional(),
    weights: integerMap(
      0,
      MAX_TRAFFIC_WEIGHT,
      'Weights by cluster id. One without a weight counts by its ready endpoints; 0: it gets nothing new.',
      MAX_POLICY_CALLERS,
    ).optional(),
  },
  `Some clusters: ${ONE_OF_TIER} is set. A cluster belongs to the first tier that has it.`,
  { 'x-kubernetes-validations': TIER_RULES },
)

const RULES = {
  order: list(
    TIER,
    'Tiers, first to last. All clusters by their ready endpoints if absent or empty.',
    MAX_TRAFFIC_TIERS,
  ).optional(),
  spillBelowPercent: integer(
    0,
    100,
    'A tier keeps all calls while this share of its endpoints is ready. Below, the part that is missing moves to the next tier. 0: only when none is ready. 0 if absent.',
  ).optional(),
  sessionAffinity: map(
    {
      clientIP: map(
        { timeoutSeconds: integer(1, MAX_AFFINITY_SECONDS, 'Seconds for which a client keeps its endpoint.') },
        'By the address of the client.',
      ),
    },
    'Replaces the session affinity of the export.',
  ).optional(),
  whenNoneReady: choice(
    ['all', 'refuse'],
    'all: without a ready endpoint in any tier, all clusters are called. refuse: calls are refused. all if absent.',
  ).optional(),
  headless: choice(
    ['follow'],
    'follow: DNS answers for headless services follow the policy too. They do not if absent.',
  ).optional(),
  passiveHealth: map({}, 'If set, endpoints that refuse or do not answer are left out for a while.').optional(),
}

const SHARE = map(
  {
    cluster: text('Id of the exporting cluster.'),
    share: integer(0, MAX_TRAFFIC_WEIGHT, 'Share of new connections in 1/10,000.'),
    tier: anyInteger('int32', 'Index of its tier in spec.order. Absent: it is in none.').optional(),
    ready: anyInteger('int32', 'Ready endpoints.'),
    total: anyInteger('int32', 'All endpoints.'),
    weight: anyInteger('int32', 'Weight in its tier. Absent: by ready endpoints.').optional(),
    reason: text('Reason code.'),
    message: text('The reason in words.').optional(),
  },
  'The share of one cluster.',
)

const PORT_SHARE = map(
  {
    cluster: text('Id of the exporting cluster.'),
    share: integer(0, MAX_TRAFFIC_WEIGHT, 'Share of new connections in 1/10,000.'),
    ready: anyInteger('int32', 'Ready endpoints that serve the ports.'),
    total: anyInteger('int32', 'All endpoints that serve the ports.'),
    reason: text('Reason code.'),
  },
  'The share of one cluster.',
)

const PORT_GROUP = map(
  {
    ports: list(text('Name of the port, or its protocol and number.'), 'Ports with these shares.', MAX_REPORTED_PORTS),
    portsLeftOut: anyInteger('int32', 'Ports with these shares that are not listed.').optional(),
    shares: list(PORT_SHARE, 'Shares by cluster; they add up to 10000, or to 0.', MAX_REPORTED_PORT_SHARES),
    leftOut: anyInteger('int32', 'Clusters that are not listed.').optional(),
  },
  'Some ports.',
)

const SERVICE = map(
  {
    namespace: text('Namespace of the service.'),
    name: text('Name of the service.'),
    shares: list(SHARE, 'Shares by cluster; they add up to 10000, or to 0 if calls are refused.', MAX_REPORTED_SHARES),
    leftOut: anyInteger('int32', 'Clusters that are not listed.').optional(),
    portShares: list(
      PORT_GROUP,
      'Ports that not all endpoints serve and whose shares are therefore others. All other ports have the shares of the service.',
      MAX_REPORTED_PORT_GROUPS,
    ).optional(),
    portSharesLeftOut: anyInteger('int32', 'Groups of such ports that are not listed.').optional(),
  },
  'One service.',
)

const statusWith = <T extends z.ZodType>(spec: T) =>
  map(
    {
      conditions: CONDITIONS.optional(),
      services: list(SERVICE, 'Services that the policy counts for.', MAX_REPORTED_SERVICES).optional(),
      servicesLeftOut: anyInteger('int32', 'Services that are not listed.').optional(),
      inForce: versionInForce(spec).optional(),
    },
    'Whether the policy is in force, and who gets which share. Written by the agent.',
  ).optional()

const SPEC = map(
  {
    targetRefs: list(
      map(
        {
          group: choice(['multicluster.x-k8s.io'], 'multicluster.x-k8s.io, if it is set.').optional(),
          kind: choice(['ServiceImport'], 'ServiceImport.').optional(),
          name: dnsLabel('Name of the ServiceImport.'),
        },
        'One ServiceImport of this namespace.',
      ),
      'The services of this policy. All services of the namespace if absent or empty.',
      MAX_POLICY_ENTRIES,
    ).optional(),
    ...RULES,
  },
  'The services, and where their calls go.',
)
const CLUSTER_SPEC = map(RULES, 'Where calls go.')

/** How the calls to the services of one namespace are divided. The most specific policy counts, whole. */
export const TRAFFIC_POLICY_FIELDS = object(
  'Divides calls of this cluster to imported services of its namespace over the exporting clusters. The most specific policy counts, whole.',
  { spec: SPEC, status: statusWith(SPEC) },
)

/** The default of a cluster. Cluster-scoped, one object named "default". */
export const CLUSTER_TRAFFIC_POLICY_FIELDS = object(
  'Divides calls of this cluster to services without a TrafficPolicy. There is one object, named default.',
  { spec: CLUSTER_SPEC, status: statusWith(CLUSTER_SPEC) },
  { 'x-kubernetes-validations': [{ rule: "self.metadata.name == 'default'", message: 'metadata.name is default' }] },
)

/** Adds an issue for each tier of a policy that has not exactly one of its kinds, which the CRD says by a rule of CEL. */
export function checkTiers(
  { spec }: { readonly spec: { readonly order?: readonly object[] | undefined } },
  context: z.RefinementCtx,
): void {
  for (const [i, tier] of (spec.order ?? []).entries())
    if (!isOneTier(tier)) context.addIssue({ code: 'custom', path: ['spec', 'order', i], message: ONE_OF_TIER })
}

/** Whether a tier has exactly one of its kinds. */
export function isOneTier(tier: object): boolean {
  return TIER_KINDS.filter((kind) => Object.hasOwn(tier, kind)).length === 1
}
