/** Attacks by a compromised broker. */
import type { AttackRow } from './row.ts'

/** The check in the agent of each member, which is the last line of defence. */
const OWN = '`model/addresses/own-cluster.ts`: '

export const BROKER: readonly AttackRow[] = [
  {
    id: 'broker-own-pods',
    tried: 'The broker tells a cluster other pod CIDRs for itself: more, fewer, none, all of IPv4, nonsense.',
    holds: 'No route, no nft text and no object of that cluster moves.',
    against: `${OWN}the site file says which pods a cluster has; the broker may only leave its IPv6 out.`,
  },
  {
    id: 'broker-own-services',
    tried: "The broker removes a cluster's Service CIDRs, then announces a member with pods there.",
    holds: 'The cluster keeps its Service CIDRs, and does not use that member.',
    against: `${OWN}Service CIDRs come from the site file, and the claims of others are checked against those.`,
  },
  {
    id: 'broker-own-index',
    tried: 'The broker gives a cluster another number, also that of another member.',
    holds: 'Lane addresses stay as they are.',
    against: `${OWN}the number is that of the join, for as long as the cluster has it in its own API.`,
  },
  {
    id: 'broker-own-global',
    tried: 'The broker sends global CIDRs outside the global range, over Services, or of another size.',
    holds: 'Nothing is translated to them.',
    against: `${OWN}a global CIDR lies in the range that was told at the join, and beside the own ranges.`,
  },
  {
    id: 'broker-own-labels',
    tried: 'The broker tells a cluster labels of itself that it does not have.',
    holds: 'It keeps its own.',
    against: `${OWN}labels come from the site file.`,
  },
  {
    id: 'broker-own-export',
    tried: "The broker tells a cluster of an export that it does not have, with a node's address.",
    holds: 'No service of that name comes into being, and nothing leads to the node.',
    against: '`agent/import/clusterset-records.ts`: the own API says what this cluster exports.',
  },
  {
    id: 'broker-own-endpoints',
    tried: 'The broker sends a cluster false endpoints and ports of its export, and false gateways.',
    holds: 'The endpoints, ports and gateways stay those of its own API.',
    against:
      '`agent/import/clusterset-records.ts`, `agent/import/plan-imports.ts`: a cluster takes its own objects from its own API only.',
  },
  {
    id: 'broker-own-gone',
    tried: 'The broker withdraws the record of the cluster itself and says that it has departed.',
    holds: 'The cluster goes on: its own object, its lanes and its exports stay.',
    against: '`agent/import/plan-imports.ts`: the mirror does not remove the cluster’s own objects.',
  },
  {
    id: 'broker-own-ranges',
    tried: "Invented members claim the cluster's own pods and Services, or all of IPv4.",
    holds: 'None of them is used, and the log names each.',
    against: '`agent/import/check-record.ts`: claims of others are checked against the own API.',
  },
  {
    id: 'broker-false-owner',
    tried: 'Records of one member say in their body that they are of another member, or of none.',
    holds: 'None of them counts.',
    against: '`agent/import/check-record.ts`: the key of a record says whose it is, and the body must agree.',
  },
  {
    id: 'broker-names',
    tried: 'Names of clusters, nodes and services with dots, slashes, spaces, upper case, or none at all.',
    holds: 'No object and no file comes into being, inside the state folder or outside.',
    against:
      '`protocol/codec/codec-checks.ts`, `agent/import/check-record.ts`: each name is checked before it is used.',
  },
  {
    id: 'broker-long-names',
    tried: 'A gateway whose node has a name that is too long for a file or an object.',
    holds: 'It is left out and logged, and all else goes on.',
    against: '`agent/import/check-record.ts`: the whole name of the object is checked before it is made.',
  },
  {
    id: 'broker-namespaces',
    tried: 'Exports and endpoints in system namespaces, and in a namespace that does not exist.',
    holds: 'Nothing is written there: the importer has an allow list of its own.',
    against:
      '`agent/import/check-record.ts`: the namespace is that of the record’s key, and the list is that of this cluster.',
  },
  {
    id: 'broker-clusterset-ips',
    tried: 'Clusterset IPs of a Service, a node or a pod, special ones, or no addresses.',
    holds: 'No connection to any of them is taken.',
    against: '`agent/import/plan-service.ts`: an address lies in the range that was told at the join.',
  },
  {
    id: 'broker-endpoint-addresses',
    tried: "Endpoints with special addresses, or those of this cluster's pods, nodes and Services.",
    holds: 'No slice of ours has them.',
    against: '`agent/export/member-records.ts`: an endpoint lies in the pod CIDRs of the member that tells it.',
  },
  {
    id: 'broker-injected-text',
    tried: 'Commands of nft and of a shell, escape sequences and paths wherever a record has text.',
    holds: 'None of it reaches an object, a file name or nft text.',
    against:
      '`agent/import/check-record.ts`, `agent/import/plan-service.ts`: texts that are passed on are checked against a syntax.',
  },
  {
    id: 'broker-our-labels',
    tried: 'An export with the labels by which the agent knows its own objects.',
    holds: 'The object stays ours, and goes when the export does.',
    against: '`agent/import/plan-service.ts`: our labels replace those of an exporter.',
  },
  {
    id: 'broker-absurd-numbers',
    tried: 'Ports, lanes, numbers, times and silences beyond all bounds.',
    holds: 'Nothing moves, and no loop of the agent stops.',
    against:
      '`protocol/codec/record-bodies.ts`, `agent/cluster/plan-cluster-status.ts`: numbers have bounds where they are read.',
  },
  {
    id: 'broker-octets',
    tried: 'Events that are no records: nothing, zeros, 2 MiB, cut-off messages, noise.',
    holds: 'Each is skipped, and the records after it count.',
    against: '`protocol/replica/record-replica.ts`: one event that cannot be read hides no other.',
  },
  {
    id: 'broker-empty-snapshot',
    tried: 'The broker starts again with an empty snapshot.',
    holds: 'Everything stays: what the broker does not show is kept until its owner withdraws it.',
    against:
      '`protocol/replica/record-replica.ts`: a record goes when its owner has declared its whole set without it.',
  },
  {
    id: 'broker-addresses',
    tried: 'The broker names hundreds of addresses of its own at which nobody is, and text that is no address.',
    holds: 'The member comes back to the address of its token within two attempts, and whatever was sent stays out.',
    against: '`protocol/broker-addresses.ts`: what was named counts once a connection to it has worked.',
  },
  {
    id: 'broker-many-gateways',
    tried: 'The broker passes on hundreds of gateways of one member.',
    holds: 'The 64 that came first are imported, and one line of the log names how many are left out.',
    against: '`agent/import/clusterset-records.ts`: the importer has the limit of the broker.',
  },
  {
    id: 'broker-flood-elsewhere',
    tried: 'Thousands of exports in namespaces that are not here or not allowed.',
    holds: 'Nothing is written, and the log says it in a few lines.',
    against: '`agent/mirror/mirror-loop.ts`: at most 20 lines in one round.',
  },
  {
    id: 'broker-renewal',
    tried: 'The broker answers a renewal with rubbish, or a certificate for another cluster or key.',
    holds: 'The identity that the agent has stays on its disk.',
    against:
      '`protocol/identity/certificates.ts`: a new certificate is judged before it takes the place of the old one.',
  },
  {
    id: 'broker-authorities',
    tried: 'The broker announces changing authorities two hundred times, some that do not exist.',
    holds:
      'The agent asks for its certificate a few times, takes what it is given only as any renewal, and waits longer.',
    against:
      '`agent/link/certificate-renewal.ts`: the word only brings a renewal forward, and one that changes nothing is followed by a longer wait.',
  },
  {
    id: 'broker-join-answer',
    tried: 'The broker answers a join with unstated ranges, overlaps, and certificates of others.',
    holds: 'The join fails and says why, and nothing of it is kept.',
    against: '`protocol/membership/join.ts`: the answer is judged by what was asked.',
  },
]
