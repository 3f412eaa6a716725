/** Faults that no attacker causes: restarts, full disks, wrong clocks and lost networks. */
import type { AttackRow } from './row.ts'

const GATEWAY =
  '`gateway/main.ts` follows nftables and rtnetlink; `kernel/drift.ts` tells repairs from changes of the plan.'
const NODE =
  '`routeagent/main.ts` follows nftables and rtnetlink; `kernel/drift.ts` tells repairs from changes of the plan.'

const KNOCKS =
  '`kernel/probing/prober.ts`: a knock at a silent gateway’s kernel lives for two seconds, and the last miss waits for as long as the way takes.'

const HANDSHAKES =
  '`gateway/cable/wireguard/wireguard-cable.ts`: how old a handshake is goes by the clock that never jumps.'

const HOLDERS = '`kernel/port-holders.ts`: whatever finds its port taken says which, and which process has it.'

export const FAULTS: readonly AttackRow[] = [
  {
    id: 'gateway-nft-flushed',
    tried: 'Somebody runs `nft flush ruleset` on a gateway.',
    holds:
      'The tables of both families are back at once, traffic goes on, and the log says that the whole table was missing.',
    against: GATEWAY,
  },
  {
    id: 'gateway-chain-deleted',
    tried: "Somebody deletes one chain of a gateway's table.",
    holds: 'It is back at once, and the log names it.',
    against: GATEWAY,
  },
  {
    id: 'gateway-route-deleted',
    tried: 'Somebody deletes a route into a lane, and puts one there that is not ours.',
    holds: 'The one is back and the other gone at once, each with a line of the log.',
    against: GATEWAY,
  },
  {
    id: 'gateway-rule-deleted',
    tried: "Somebody deletes the rule that leads to a gateway's routes.",
    holds: 'It is back at once, with a line of the log.',
    against: GATEWAY,
  },
  {
    id: 'gateway-peer-removed',
    tried: 'Somebody removes the peer of a lane.',
    holds: 'It is back once the probes miss it, the lane comes up again, and the log names the peer.',
    against: GATEWAY,
  },
  {
    id: 'gateway-device-deleted',
    tried: 'Somebody deletes the device of a lane.',
    holds:
      'It is made anew with its address, routes and peers, the lane comes up again, and the log says what was missing.',
    against: GATEWAY,
  },
  {
    id: 'node-nft-flushed',
    tried: 'Somebody runs `nft flush ruleset` on a node.',
    holds:
      'The tables of both families are back at once, the overlay stays closed to strangers, and the log says what was missing.',
    against: NODE,
  },
  {
    id: 'node-chain-deleted',
    tried: "Somebody deletes one chain of a node's table.",
    holds: 'It is back at once, and the log names it.',
    against: NODE,
  },
  {
    id: 'node-route-and-rule-deleted',
    tried: 'Somebody deletes a route to another cluster and the rule that leads to it, on a node.',
    holds: 'Both are back at once, each with a line of the log and a count.',
    against: NODE,
  },
  {
    id: 'node-overlay-deleted',
    tried: 'Somebody deletes the overlay device of a node.',
    holds:
      'It is made anew with its neighbours and routes, other clusters are reached, and the log says what was missing.',
    against: NODE,
  },
  {
    id: 'node-neighbour-deleted',
    tried: 'Someone deletes the neighbour and forwarding entry of another node from the overlay.',
    holds: 'Both are back at once, with a line of the log.',
    against: NODE,
  },
  {
    id: 'restart-at-250-ms',
    tried: 'A gateway process is killed and started anew, with 250 ms of round trip between the gateways.',
    holds: 'The lane stays up at both ends, and no call is lost.',
    against: KNOCKS,
  },
  {
    id: 'restart-at-500-ms',
    tried: 'The same with a round trip of 500 ms.',
    holds: 'The lane stays up at both ends, and no call is lost.',
    against: KNOCKS,
  },
  {
    id: 'wall-clock-forward',
    tried: 'The clock of a gateway goes forward an hour; the path is cut, and the process restarts.',
    holds:
      'The session is kept while the way is shut, the lane is back with it, and the status gives the true age of the handshake.',
    against: HANDSHAKES,
  },
  {
    id: 'wall-clock-back',
    tried: 'The same with a clock that is set back by an hour.',
    holds:
      'The session is kept while the way is shut, the lane is back with it, and the status gives the true age of the handshake.',
    against: HANDSHAKES,
  },
  {
    id: 'own-address-changes',
    tried: 'A gateway’s machine loses its address and gets another one, and then the first one back.',
    holds: 'The lane carries calls again long before WireGuard gives an unheard peer up (15 s).',
    against:
      '`gateway/cable/wireguard/wireguard-cable.ts`: where this node sends from another address than before, WireGuard is given the peer’s place anew, in the same session.',
  },
  {
    id: 'lane-port-taken',
    tried: 'A gateway starts while another process has the UDP port of its lane.',
    holds: 'The Gateway’s status names the port and the process; when that process ends, the lane comes up.',
    against: HOLDERS,
  },
  {
    id: 'probe-port-taken',
    tried: 'The same with the UDP port of the probes.',
    holds: 'The Gateway’s status names the port and the process; when that process ends, the lane comes up.',
    against: HOLDERS,
  },
  {
    id: 'overlay-port-taken',
    tried: 'The routeagent of a node starts while another process has the UDP port of the overlay.',
    holds: 'The RouteAgent’s status names the port and the process; when that process ends, the overlay is there.',
    against: HOLDERS,
  },
  {
    id: 'candidate-is-own',
    tried: 'A member publishes addresses of another’s gateway, its loopback and its bridge as its own.',
    holds: 'That gateway never calls itself, and finds the right address among them.',
    against:
      '`gateway/links/check-remotes.ts`: a candidate that is an address of this cluster’s nodes, or the place that this lane itself publishes, is not called.',
  },
  {
    id: 'renumbering-named',
    tried: 'A cluster joins with pods that have the addresses of another member’s.',
    holds:
      'Before and in the answer to the join the broker names the members that get global addresses by it; asking before changes nothing and does not spend the token.',
    against:
      '`broker/members/membership.ts`: the join is tried and rolled back; `cli/cluster/renumbering.ts` asks, `agent/cluster/open-connections.ts` reports it on the other side.',
  },
  {
    id: 'open-connections-absurd',
    tried: 'A member reports 2^31 or more open connections while a cluster joins that renumbers it.',
    holds:
      'What cannot be is refused, and what was told before stays. What can be is handed on with that member alone: the join goes through, and no other member’s figure changes.',
    against:
      '`broker/records/admission-facts.ts` and `agent/import/check-record.ts`: whole numbers below 2^31; nothing is decided by them.',
  },
  {
    id: 'member-report-absurd',
    tried: 'A member reports escape sequences, a thousand problems, invalid codes, too many lanes.',
    holds:
      'What cannot be is refused, and what was told before stays. `sealane members` shows the figures of each member beside its own name, and those of the others do not change.',
    against:
      '`protocol/codec/record-bodies.ts` bounds it, `broker/records/admission-facts.ts` and `agent/import/check-record.ts` by `model/member-status.ts`; `cli/context/output.ts` prints no control characters.',
  },
  {
    id: 'look-with-a-spent-token',
    tried: 'Somebody with a token that is spent, or revoked, asks what a join would change for others.',
    holds: 'He is refused as with a join, and learns of no member.',
    against: '`broker/broker.ts`: a look is admitted as a join is, and for no key at all.',
  },
  {
    id: 'join-refused-after-signing',
    tried: 'Joins with a good token fail again and again after signing: the range is exhausted.',
    holds: 'About twenty hear the reason, the others RESOURCE_EXHAUSTED before anything is signed. Other tokens join.',
    against: '`broker/members/joining.ts`: joins that were refused late, or repeated, are counted by token.',
  },
  {
    id: 'range-exhausted',
    tried: 'A cluster joins that needs a block of global addresses, and the range has none of that size.',
    holds:
      'It is refused with what was asked, what is free and what can be done, also when it only asks before; the others keep what they have.',
    against: '`broker/addresses/allocation.ts`: the refusal counts the range.',
  },
  {
    id: 'both-behind-nat',
    tried: 'Two gateways are each behind address translation that lets nobody in.',
    holds:
      'Both say that neither can be called, how each is seen, and what can be done; and that, once done, brings the lane up.',
    against:
      '`gateway/links/plan-lanes.ts`: what both ends publish about themselves; `sealane join` gives up after 15 s and says the same.',
  },
  {
    id: 'publish-range-regained',
    tried: 'A range of a member is carried again while 300 acknowledgements to it are under way.',
    holds: 'Its stream ends with FAILED_PRECONDITION that names the range, three times in three.',
    against: '`protocol/transport/broker-service.ts`: a reader never destroys its stream, so the status is still sent.',
  },
  {
    id: 'publish-half-closed',
    tried: 'A member sends 300 changes and closes its half of the stream at once.',
    holds: 'All are acknowledged, then the stream ends with OK.',
    against: '`broker/sessions/publish-session.ts`: the last message is waited for (`onLast`).',
  },
  {
    id: 'publish-replaced-unasked',
    tried: 'A member opens a second Publish stream, and says nothing more on the first.',
    holds: 'The first ends with FAILED_PRECONDITION, the second is served.',
    against: '`broker/broker.ts`: a stream that is replaced ends with that reason, also when it is silent.',
  },
  {
    id: 'publish-disk-full',
    tried: 'The database takes no writes, a member has 1,500 changes under way, and the broker is stopped.',
    holds: 'The stream ends with UNAVAILABLE; nothing that was not written is acknowledged.',
    against: '`protocol/transport/broker-service.ts`: waiting for the disk ends with the stream.',
  },
  {
    id: 'publish-unread-and-evicted',
    tried: 'A member that takes no answer (a window of 0 octets) is evicted.',
    holds: 'Its status can not be handed over, so its connection is closed within seconds.',
    against: '`protocol/transport/broker-service.ts`: a connection that does not take its status in time is dropped.',
  },
  {
    id: 'watch-unread-and-evicted',
    tried: 'A member that takes nothing of its watch (a window of 0 octets) is evicted.',
    holds: 'Its watch ends at once and its connection is closed within seconds; it is not waited for.',
    against: '`broker/sessions/watch-hub.ts`: who is no member any more is told without being asked for more.',
  },
  {
    id: 'clock-ahead-renewal',
    tried: "A member's clock is 17 hours ahead: each new certificate is due for renewal at once.",
    holds: 'It is renewed once, then minutes to hours lie between two; the log names both times.',
    against: '`agent/link/certificate-renewal.ts`: pauses that grow between renewals that follow each other.',
  },
  {
    id: 'clock-behind-renewal',
    tried: "A member's clock is 30 hours behind: its certificate would end before it is due.",
    holds: 'It is renewed at once and from then on by the monotonic clock; the log names both times.',
    against: '`agent/link/plan-renewal.ts`: whichever clock says first that two thirds are over.',
  },
  {
    id: 'broker-state-lost',
    tried: "A broker's database is gone and its key is there.",
    holds: 'It does not start, says which backup to restore, and starts with `--accept-empty`.',
    against: '`broker/recovery/state-mark.ts`: a key without its database is no first start.',
  },
  {
    id: 'broker-state-older',
    tried: "A broker's database is replaced by a copy from before the last member joined.",
    holds: 'It does not start, and says how much older the copy is.',
    against: '`broker/recovery/state-mark.ts`: a mark beside the key says how far the state had come.',
  },
  {
    id: 'broker-state-older-with-mark',
    tried: 'All of the state, the mark with it, is replaced by such a copy; the last member comes.',
    holds: 'It is refused, and the log says that the database is older than its certificate.',
    against: '`broker/identity/certificate-use.ts`: a certificate of our own that these rows cannot have forgotten.',
  },
  {
    id: 'restored-broker-lied-to',
    tried: 'A member tells a restored broker that it holds all numbers and blocks, and false members.',
    holds:
      'No row of the backup changes; 1,000 of them are kept at most, and let nobody in; a cluster that joins gets a number.',
    against: '`broker/members/settling.ts`: what is said counts only where nobody has it, and a certificate lets in.',
  },
  {
    id: 'dns-hand-over',
    tried: 'A DNS process is replaced under load, before the new one has read an object.',
    holds: 'Every question over UDP and TCP, IPv4 and IPv6, has its right answer; none is lost, none is SERVFAIL.',
    against:
      'dns/server/port-handover.ts waits for the objects; dns/server/port-group.ts passes on what comes before dns/server/listener.ts closes',
  },
  {
    id: 'dns-blind-successor',
    tried: 'A second DNS process is started on a port that is served, and never gets to read its objects.',
    holds:
      'It leaves the port to the process that has the objects, so no client gets a SERVFAIL. When that process ends, it listens and answers SERVFAIL, never "no such name".',
    against:
      '`dns/server/port-handover.ts` checks whether another process is on the port before it listens without objects.',
  },
  {
    id: 'dns-restart',
    tried: 'A DNS process restarts while a client holds a silent connection open.',
    holds: 'The first ends within two seconds, and the second answers on the same port.',
    against: 'dns/server/port-handover.ts and dns/server/tcp-server.ts wait for answers, not for clients',
  },
]
