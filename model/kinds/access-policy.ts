/** The descriptions of AccessPolicy and ClusterAccessPolicy: whom a cluster offers its services. */
import type { z } from 'zod'
import { MAX_LABEL_VALUE, MAX_POLICY_CALLERS, MAX_POLICY_ENTRIES, MAX_POLICY_NAMESPACES } from '../values/values.ts'
import { CONDITIONS } from './conditions.ts'
import { type Rule, choice, dnsLabel, flag, list, map, object, text, textMap } from './fields.ts'
import { versionInForce } from './policy-version.ts'

/** What the operator of a requirement says of its values. Readers check it by isUnderstoodSelector(). */
export const VALUES_OF_OPERATOR: Rule = {
  rule: "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0",
  message: 'expected values with In and NotIn, and none with other operators',
}

const REQUIREMENT = map(
  {
    key: text('Key of the label.', { minLength: 1, maxLength: 317 }),
    operator: choice(['In', 'NotIn', 'Exists', 'DoesNotExist'], 'In, NotIn, Exists or DoesNotExist.'),
    values: list(
      text('One value.', { maxLength: MAX_LABEL_VALUE }),
      'Values for In and NotIn.',
      MAX_POLICY_ENTRIES,
    ).optional(),
  },
  'A requirement of the labels.',
  { 'x-kubernetes-validations': [VALUES_OF_OPERATOR] },
)

/** A label selector as in metav1.LabelSelector. An empty one selects everything, unless a rule forbids it. */
export const labelSelector = (what: string, rules: readonly Rule[] = []) =>
  map(
    {
      matchLabels: textMap(
        'Labels and their values.',
        { maxProperties: MAX_POLICY_ENTRIES },
        { maxLength: MAX_LABEL_VALUE },
      ).optional(),
      matchExpressions: list(REQUIREMENT, 'Requirements that must all be met.', MAX_POLICY_ENTRIES).optional(),
    },
    what,
    rules.length === 0 ? {} : { 'x-kubernetes-validations': rules },
  )

const CALLERS = map(
  {
    clusters: list(
      dnsLabel('Id of a member.'),
      'Ids of members. All members if absent.',
      MAX_POLICY_CALLERS,
    ).optional(),
    selector: labelSelector('Labels of the members, as in their Cluster objects. All members if absent.').optional(),
    namespaces: list(
      dnsLabel('Name of a namespace.'),
      'Namespaces of the callers. All namespaces if namespaces and namespaceSelector are absent.',
      MAX_POLICY_NAMESPACES,
    ).optional(),
    namespaceSelector: labelSelector('Labels of the namespaces of the callers, in addition to namespaces.').optional(),
  },
  'Some callers: those that meet both clusters and selector, from these namespaces. An empty entry means all members.',
)

const EGRESS = map(
  {
    namespaces: list(
      dnsLabel('Name of a namespace.'),
      'Namespaces of this cluster. All, and the nodes, if namespaces and namespaceSelector are absent.',
      MAX_POLICY_NAMESPACES,
    ).optional(),
    namespaceSelector: labelSelector('Labels of namespaces of this cluster, in addition to namespaces.').optional(),
    clusters: list(
      dnsLabel('Id of a member.'),
      'Ids of members. All members if absent.',
      MAX_POLICY_CALLERS,
    ).optional(),
    selector: labelSelector('Labels of the members, as in their Cluster objects. All members if absent.').optional(),
  },
  'Pods of these namespaces may call the members that meet both clusters and selector.',
)

const statusWith = <T extends z.ZodType>(spec: T) =>
  map(
    { conditions: CONDITIONS.optional(), inForce: versionInForce(spec).optional() },
    'Whether the policy is in force. Written by the agent.',
  ).optional()

const SPEC = map(
  {
    targetRefs: list(
      map(
        {
          group: choice(['multicluster.x-k8s.io'], 'multicluster.x-k8s.io, if it is set.').optional(),
          kind: choice(['ServiceExport'], 'ServiceExport.').optional(),
          name: dnsLabel('Name of the ServiceExport.'),
        },
        'One ServiceExport of this namespace.',
      ),
      'The services of this policy. All services of the namespace if absent or empty.',
      MAX_POLICY_ENTRIES,
    ).optional(),
    from: list(CALLERS, 'Who may call. Nobody if it is empty.', MAX_POLICY_ENTRIES),
  },
  'The services and their callers.',
)
const CLUSTER_SPEC = map(
  {
    default: choice(
      ['allow', 'deny'],
      'allow: all members may call services without an AccessPolicy. deny: no other member may.',
    ),
    egress: list(
      EGRESS,
      'Which namespaces of this cluster may call which members. All may call all if absent, none if empty.',
      MAX_POLICY_ENTRIES,
    ).optional(),
    keepOpenConnections: flag(
      'true: TCP connections that are open go on when policies of this cluster take away. All others end at once.',
    ).optional(),
  },
  'The default. The stricter one of this and of the clusterset counts.',
)

/** Whom the services of one namespace are offered. Policies only add; a service with none follows the default. */
export const ACCESS_POLICY_FIELDS = object(
  'Offers exported services of its namespace to the named callers in other clusters. Several policies of one service add up.',
  { spec: SPEC, status: statusWith(SPEC) },
)

/** The default of a cluster. Cluster-scoped, one object named "default". */
export const CLUSTER_ACCESS_POLICY_FIELDS = object(
  'Default for exported services without an AccessPolicy. There is one object, named default.',
  { spec: CLUSTER_SPEC, status: statusWith(CLUSTER_SPEC) },
  { 'x-kubernetes-validations': [{ rule: "self.metadata.name == 'default'", message: 'metadata.name is default' }] },
)
