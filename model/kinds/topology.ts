/** The description of a topology: which clusters of a clusterset link with which. The broker keeps one. */
import { MAX_TOPOLOGY_CLUSTERS, MAX_TOPOLOGY_GROUPS, MAX_TOPOLOGY_PAIRS } from '../values/values.ts'
import { labelSelector } from './access-policy.ts'
import { choice, dnsLabel, list, map } from './fields.ts'

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
  )

const PAIR = map(
  {
    between: side('One side: the clusters that meet both clusters and selector.'),
    and: side('The other side. The order of the sides does not matter.'),
    via: ids('Ids of members that relay between the two. Such a pair has no other way.').optional(),
  },
  'Each cluster of one side links with each cluster of the other.',
)

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
)
