/** Ways past the access rules of a member, by another member that owns its cluster. */
import type { AttackRow } from './row.ts'

const CHAINS = '`routeagent/access/access-chains.ts`'
const ASK = `${CHAINS}, chain \`ask\`: what no export names is dropped, whatever it pretends to be.`
const CALLERS = `${CHAINS}, chains \`all-members\` and \`from-…\`: callers are sets of prefixes, of members alone.`
const STATE = `${CHAINS}, chain \`admit\`: an answer is what the connection tracking of the pod's node says is one.`
const DEFRAGMENTED = 'Connection tracking puts parts together before any rule looks at them.'
const NODE = `${CHAINS}, chain \`admit-node\`: an address of the node is no pod, whatever a slice says.`
const AUDIENCES = '`broker/sessions/audiences.ts`: each record has an audience, and so has its name.'
const INNER = '`routeagent/balance/plan-overlay-guard.ts`: sources and destinations are those of pods alone.'

/** What all attacks with packets have in common. */
const DROPPED = 'It is dropped and counted by its reason, and an allowed caller goes on.'

const source = (name: string, what: string): AttackRow => ({
  id: `access-source-${name}`,
  tried: `A member calls an exported port from ${what}.`,
  holds: DROPPED,
  against: CALLERS,
})

export const ACCESS: readonly AttackRow[] = [
  {
    id: 'access-scan',
    tried: 'A member scans pods, nodes, Services, API server, metadata and more of another, and forges its source.',
    holds:
      'Exported ports answer, with a policy only to whom they are offered; of all else, nothing but its lane. No forged source comes out of it.',
    against: `${CHAINS} and \`routeagent/balance/plan-overlay-guard.ts\` on nodes, \`gateway/nft\` at the lane.`,
  },
  {
    id: 'access-scan-translated',
    tried: 'The same where both members have the same addresses.',
    holds: 'The same.',
    against: CHAINS,
  },
  source('own-pod', 'the address of a pod of the same node'),
  source('own-pod-elsewhere', 'the address of a pod of another node'),
  source('unspecified', '0.0.0.0'),
  source('loopback', '127.0.0.1'),
  source('broadcast', 'the broadcast address'),
  source('multicast', 'a multicast address'),
  source('lane', 'the address of a lane'),
  source('clusterset-ip', 'a clusterset IP'),
  source('no-member', 'an address that no member has'),
  { ...source('node', 'the address of a node of the exporter'), against: INNER },
  {
    id: 'access-not-offered',
    tried: 'A member calls a port that is offered to another member only.',
    holds: DROPPED,
    against: CALLERS,
  },
  {
    id: 'access-other-port',
    tried: 'A member calls other ports of an exported pod, and a pod that is not exported.',
    holds: DROPPED,
    against: ASK,
  },
  {
    id: 'access-node-among-pods',
    tried: 'A member calls a node by its address among the pods, at an exported port, the kubelet and the overlay.',
    holds: DROPPED,
    against: NODE,
  },
  {
    id: 'access-node-itself',
    tried: 'A member calls a node by its own address.',
    holds: 'Nothing passes the node.',
    against: '`routeagent/routes/plan-overlay-drops.ts`: the kernel has no way back from there to other clusters.',
  },
  {
    id: 'access-no-pod-there',
    tried: 'A member sends to metadata, link-local, multicast, broadcast, Service and loopback addresses.',
    holds: 'Nothing passes the node.',
    against: 'The kernel discards most of them; `routeagent/balance/plan-overlay-guard.ts` the rest.',
  },
  { id: 'access-answer-syn-ack', tried: 'A SYN-ACK answers nobody.', holds: DROPPED, against: STATE },
  { id: 'access-answer-reset', tried: 'Resets answer nobody.', holds: DROPPED, against: STATE },
  { id: 'access-answer-fin', tried: 'A FIN ends no connection.', holds: DROPPED, against: STATE },
  {
    id: 'access-answer-ack',
    tried: 'Segments pretend to belong to a connection whose beginning nobody saw.',
    holds: DROPPED,
    against: ASK,
  },
  {
    id: 'access-absurd-flags',
    tried: 'Segments have no flags, all of them, or those that exclude each other.',
    holds: DROPPED,
    against: STATE,
  },
  { id: 'access-answer-udp', tried: 'Datagrams from port 53 answer no question.', holds: DROPPED, against: ASK },
  { id: 'access-echo-reply', tried: 'Echo replies answer no echo.', holds: DROPPED, against: STATE },
  { id: 'access-echo-to-another', tried: 'Echo goes to a pod that is not exported.', holds: DROPPED, against: ASK },
  {
    id: 'access-error-invented',
    tried: 'Five kinds of ICMP errors are about a packet that nobody sent.',
    holds: DROPPED,
    against: STATE,
  },
  {
    id: 'access-error-about-others',
    tried: 'An ICMP error is about a flow between two pods of the exporter.',
    holds: `${DROPPED} One about a flow with another member comes.`,
    against: `${CHAINS}, chain \`admit\`: another member has a say about flows of members only.`,
  },
  {
    id: 'access-icmp-questions',
    tried: 'An exported pod is asked for its time, its mask and more by ICMP.',
    holds: DROPPED,
    against: ASK,
  },
  {
    id: 'access-router-messages',
    tried: 'Router and neighbour messages of IPv6 come from afar.',
    holds: DROPPED,
    against: ASK,
  },
  { id: 'access-ipip', tried: 'IPv4 and IPv6 packets are inside an IPv4 packet.', holds: DROPPED, against: ASK },
  { id: 'access-gre', tried: 'A packet is inside GRE.', holds: DROPPED, against: ASK },
  { id: 'access-vxlan-inside', tried: 'A VXLAN frame is inside the overlay.', holds: DROPPED, against: ASK },
  {
    id: 'access-other-protocols',
    tried: 'ESP, UDP-Lite and unknown protocols have the exported port where UDP has it.',
    holds: DROPPED,
    against: `${CHAINS}, map \`access\`: the protocol is part of the key.`,
  },
  {
    id: 'access-source-route',
    tried: 'A source route leads by the node to a pod that is not exported.',
    holds: DROPPED,
    against: NODE,
  },
  {
    id: 'access-parts-tiny',
    tried: 'A SYN comes in parts of eight octets, the first without flags.',
    holds: DROPPED,
    against: DEFRAGMENTED,
  },
  {
    id: 'access-parts-overlap',
    tried: 'A part for a closed port overlaps the one for the exported port.',
    holds: 'Nothing passes the node.',
    against: DEFRAGMENTED,
  },
  {
    id: 'access-parts-without-head',
    tried: 'Parts come without their head, in both families.',
    holds: 'Nothing passes the node.',
    against: DEFRAGMENTED,
  },
  {
    id: 'access-parts-ipv6',
    tried: 'The same with IPv6 and its fragment header.',
    holds: DROPPED,
    against: DEFRAGMENTED,
  },
  {
    id: 'access-extension-headers',
    tried: 'Hop-by-hop and destination options are in front of a SYN to a closed port.',
    holds: DROPPED,
    against: `${CHAINS}: the kernel finds the segment behind all headers.`,
  },
  {
    id: 'access-routing-header',
    tried: 'An IPv6 routing header names the next pod.',
    holds: DROPPED,
    against: ASK,
  },
  {
    id: 'access-eight-gateways',
    tried: 'The same packets come by each of eight gateway nodes.',
    holds: DROPPED,
    against: 'The node of the pod decides alone.',
  },
  {
    id: 'access-failover',
    tried: 'The gateway of open flows fails, and answers to other questions come by the next one.',
    holds: 'Open flows of both directions go on. The forged answers are dropped and counted.',
    against: STATE,
  },
  {
    id: 'access-drained-gateway',
    tried: 'Packets come by a gateway that drains, and by one whose node has gone.',
    holds: 'The first lets in what all others do, the second nothing.',
    against:
      '`routeagent/balance/plan-overlay-guard.ts`: only nodes use the overlay. The node of the pod decides alone.',
  },
  {
    id: 'access-time-wait',
    tried: 'A server opens a connection to the port from which a pod has just called it.',
    holds: DROPPED,
    against: STATE,
  },
  {
    id: 'access-helper',
    tried: 'A node lets the kernel follow FTP, and a caller opens a port by it.',
    holds: DROPPED,
    against: `${CHAINS}, chain \`admit\`: only ICMP counts as related.`,
  },
  {
    id: 'access-helper-media',
    tried: 'A node lets the kernel follow SIP, and an answer names a port for media.',
    holds: `${DROPPED} Our tables set no helper.`,
    against: `${CHAINS}, chain \`admit\`: only ICMP counts as related.`,
  },
  {
    id: 'access-withdrawn',
    tried: 'An export is withdrawn while a member calls it 500 times a second.',
    holds: 'No call is answered any more, of flows that run too.',
    against: `${CHAINS}: every packet of a caller is looked up.`,
  },
  {
    id: 'access-namespace-renamed',
    tried: 'The namespace of an export is made again by another name.',
    holds: 'Nothing is open until the export is back.',
    against: '`routeagent/access/plan-access.ts`: an export counts with the slices of its own namespace.',
  },
  {
    id: 'access-endpoints-that-lie',
    tried: 'An exported slice names the node, another member, metadata and multicast.',
    holds: 'None of them is reached.',
    against: NODE,
  },
  {
    id: 'access-records',
    tried: 'A member watches all records, of which some are offered to another one only.',
    holds: 'It hears of no export, slice, clusterset IP and namespace of these.',
    against: AUDIENCES,
  },
  {
    id: 'access-interest',
    tried: 'A member states an interest in a namespace of which nothing is for it.',
    holds: 'It hears nothing of it, not even that something is exported there.',
    against: AUDIENCES,
  },
  {
    id: 'access-resume',
    tried: 'A member resumes its watch from revisions and epochs that it made up.',
    holds: 'It hears neither of records nor of removals of what was never for it.',
    against: AUDIENCES,
  },
  {
    id: 'access-same-name',
    tried: "A member exports a service by the name of another's, and offers it to itself and to all.",
    holds: "It hears of its own records only, and the other's importers keep theirs.",
    against: 'An offer is of one export, and the certificate says whose that is.',
  },
  {
    id: 'access-endpoints-of-others',
    tried: 'A member exports addresses of other members, nodes, metadata and loopback.',
    holds: 'The broker refuses each.',
    against: '`broker/records/admission.ts`: endpoints lie inside the pod ranges of their owner.',
  },
  {
    id: 'access-second-identity',
    tried: 'A member joins again as another, and as one to which something is offered; one that was evicted watches.',
    holds: 'A token for an id is for no other, and a second id is one more stranger.',
    against: '`broker/members/joining.ts`: tokens name ids. A token for any id lets its holder choose an offered one.',
  },
  {
    id: 'access-labels',
    tried: 'A member gives itself the labels that an AccessPolicy lets in, and leaves out those that it shuts out.',
    holds: 'What its token states stays in force. Where joins are approved, other labels wait for an operator.',
    against: '`broker/members/changed-facts.ts`. A label that no token states, without approval, is its own word.',
  },
  {
    id: 'access-labels-second-token',
    tried: 'A member whose token states labels joins again with tokens that state none, to be rid of them.',
    holds: 'With a token for any cluster it is refused, and with one for its own id it keeps the labels.',
    against: '`keptTokenLabels()` in `broker/members/membership.ts`: a token takes back only what it states otherwise.',
  },
  {
    id: 'access-old-offer',
    tried: 'A wider offer, which was under way on a stream that has been replaced, comes late.',
    holds: 'What was taken back stays so.',
    against: '`broker/sessions/publish-session.ts`: only the newest stream of a member writes.',
  },
  {
    id: 'access-into-importer',
    tried: 'A compromised broker passes on what is offered to others, and to nobody.',
    holds: 'It is not imported.',
    against: '`agent/import/check-record.ts`: the importer asks again.',
  },
]
