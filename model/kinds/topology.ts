/**
 * The description of a topology, which the broker keeps, and of the object from which it may come: which clusters of a
 * clusterset link with which.
 */
import { MAX_TOPOLOGY_CLUSTERS, MAX_TOPOLOGY_GROUPS, MAX_TOPOLOGY_PAIRS } from '../values/values.ts'
import { labelSelector } from './access-policy.ts'
import { CONDITIONS } from './conditions.ts'
import { type Rule, choice, dnsLabel, list, map, object } from './fields.ts'

const ids = (what: string) => list(dnsLabel('Id of a member.'), what, MAX_TOPOLOGY_CLUSTERS)

const GROUP = map(
  {
    name: dnsLabel('Name of the group.'),
    clusters: ids('Ids of the members of the group. A cluster may be in several groups.'),
  },
  'Clusters that link with each other.',
)

const side = (what: string) =>
  map(
    {
      clusters: ids('Ids of members. All members if absent.').optional(),
      selector: labelSelector('Labels of the members, as they state them. All members if absent.').optional(),
    },
    what,
    {
      'x-kubernetes-validations': [
        {
          rule: 'has(self.clusters) || has(self.selector)',
          message: 'expected clusters or selector; an empty selector stands for all members',
        },
      ],
    },
  )

const PAIR = map(
  {
    between: side('One side: the clusters that meet both clusters and selector.'),
    and: side('The other side. The order of the sides does not matter.'),
    via: ids('Ids of members that relay between the two. Such a pair has no other way.').optional(),
  },
  'Each cluster of one side links with each cluster of the other.',
)

/** What the API server checks of fields and modes. The broker checks all (model/schemas/topology.ts). */
const OF_MODE: readonly Rule[] = [
  ...(
    [
      ['groups', 'groups'],
      ['hubs', 'hub-and-spoke'],
      ['pairs', 'pairs'],
    ] as const
  ).map(([field, mode]) => ({
    rule: `self.mode == '${mode}' ? has(self.${field}) && size(self.${field}) > 0 : !has(self.${field})`,
    message: `${field}: expected at least one with mode ${mode}, and none with another mode`,
  })),
  {
    rule: "!has(self.via) || (self.mode == 'hub-and-spoke' && size(self.via) > 0)",
    message: 'via: expected at least one hub with mode hub-and-spoke, and none with another mode',
  },
]

/** The fields of a topology. Which of them a mode takes is checked in model/schemas/topology.ts. */
export const TOPOLOGY_FIELDS = map(
  {
    mode: choice(
      ['full', 'groups', 'hub-and-spoke', 'pairs'],
      'full: all clusters link. groups: clusters of one group link. hub-and-spoke: hubs link with all, others with hubs only. pairs: what is named links.',
    ),
    groups: list(GROUP, 'The groups. Only with mode groups.', MAX_TOPOLOGY_GROUPS).optional(),
    hubs: ids('Ids of the hubs. Only with mode hub-and-spoke.').optional(),
    via: ids('Ids of hubs that relay between spokes. Only with mode hub-and-spoke.').optional(),
    pairs: list(PAIR, 'The pairs. Only with mode pairs.', MAX_TOPOLOGY_PAIRS).optional(),
  },
  'Which clusters link with which.',
  { 'x-kubernetes-validations': OF_MODE },
)

/** The object in the cluster of the broker. Cluster-scoped, one object named "default" counts. */
export const TOPOLOGY_OBJECT_FIELDS = object(
  'Which clusters of the clusterset link with which, if the broker of this cluster follows it. The object named default counts.',
  {
    spec: TOPOLOGY_FIELDS,
    status: map(
      { conditions: CONDITIONS.optional() },
      'Whether the broker accepts the topology, and whether it applies. Written by the broker.',
    ).optional(),
  },
)
