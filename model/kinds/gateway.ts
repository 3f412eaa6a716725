/** The description of Gateway. */
import {
  MAX_ADDRESSED_LANE,
  MAX_CANDIDATE_NOTE,
  MAX_CONNECTION_MESSAGE_LENGTH,
  MAX_FAILURE_LENGTH,
  MAX_LINK_CANDIDATES,
  MAX_STATUS_RELAYS,
} from '../values/values.ts'
import { CONDITIONS } from './conditions.ts'
import { choice, dnsLabel, flag, integer, list, map, number, object, relied, text, timestamp } from './fields.ts'

const MAX_BYTES = Number.MAX_SAFE_INTEGER

/**
 * Why a connection does not come up, as far as one end can tell. NeitherCallable: neither end can be called from
 * outside. AnswersLost: packets of the far end arrive, but ours do not reach it. NoneAnswers: packets arrive, but none
 * answers ours. ProbesUnanswered, of a connection that is up: probes get no answers but it is not down yet, or they got
 * none a moment ago.
 */
export type ConnectionCause = 'NeitherCallable' | 'AnswersLost' | 'NoneAnswers' | 'ProbesUnanswered'

const LANE = map(
  {
    lane: integer(0, MAX_ADDRESSED_LANE, 'Lane number of this node.'),
    /** The lane of the gateways that the device leads to. Absent from releases up to 0.1: the same as `lane`. */
    remoteLane: integer(
      0,
      MAX_ADDRESSED_LANE,
      'Lane number of the gateways at the other end; if absent, the same as lane.',
    ).optional(),
    device: text('Name of the network device.', { maxLength: 15 }),
    mtu: integer(0, 65_535, 'MTU of the device, in bytes.'),
    driver: text('Tunnel driver of the lane, such as kernel or userspace WireGuard.', { maxLength: 63 }),
  },
  'One network device of the lane that this node serves.',
)

/** public, private, observed: as the far end states it. called: the far end called from there. relay: a member's. */
type LinkCandidateKind =
  'public' | 'private' | 'observed' | 'loadBalancer' | 'mapped' | 'called' | 'punched' | 'relay' | 'tcp-443'
type LinkCandidateState = 'in-use' | 'proven' | 'failed' | 'untried'

const CANDIDATE = map(
  {
    kind: text<LinkCandidateKind>(
      'public, private, observed, loadBalancer, mapped, called, punched, relay or tcp-443; later releases may add others.',
      { maxLength: 31 },
    ),
    at: text('Remote address:port; absent for relays on port 443, and while it is unknown.', {
      maxLength: 128,
    }).optional(),
    relay: text('The relay: id of a cluster, or tcp-443 and a host; absent without a relay.', {
      maxLength: 63,
    }).optional(),
    state: text<LinkCandidateState>(
      'in-use; proven: it carried the tunnel before; failed: nothing answered there; untried.',
      { maxLength: 31 },
    ),
    since: timestamp('With proven: when it carried the tunnel last. With failed: since when.').optional(),
    reason: text('Reason code of the failure.', { maxLength: 63 }).optional(),
    note: text('Why it is not used, for people.', { maxLength: MAX_CANDIDATE_NOTE }).optional(),
    rttMs: number('Round-trip time when it carried the tunnel last, in milliseconds.', { minimum: 0 }).optional(),
    relayRttMs: number('Round-trip time from this gateway to the relay alone, in milliseconds.', {
      minimum: 0,
    }).optional(),
    measuredTime: timestamp('Time of these measurements; absent for the candidate in use.').optional(),
    loss: number('Share of probes without an answer when it carried the tunnel last, 0 to 1.', {
      minimum: 0,
      maximum: 1,
    }).optional(),
    mtu: integer(0, 65_535, 'Size of the largest packet that reached the remote gateway, in bytes.').optional(),
  },
  'A way by which the remote gateway may be reached.',
)

type KnownRelayState = 'answers' | 'asking' | 'refuses' | 'connected' | 'connecting' | 'waiting' | 'idle'

const KNOWN_RELAY = map(
  {
    name: text('Id of the cluster whose gateway relays, or tcp-443 and a host.', { maxLength: 63 }),
    at: text('Address:port of a relay by UDP.', { maxLength: 128 }).optional(),
    state: text<KnownRelayState>(
      'By UDP: answers, asking or refuses. On port 443: connected, connecting, waiting (it failed) or idle.',
      { maxLength: 31 },
    ),
    seenAt: text('The address:port at which the relay sees this gateway.', { maxLength: 128 }).optional(),
    proxy: text('The proxy through which it is called, without its login.', { maxLength: 300 }).optional(),
    reason: text('Reason code of the last failure.', { maxLength: 63 }).optional(),
    note: text('The last failure, for people.', { maxLength: MAX_CANDIDATE_NOTE }).optional(),
    rttMs: number('Round-trip time of the last question, in milliseconds.', { minimum: 0 }).optional(),
  },
  'A relay that this gateway uses, or may use.',
)

const CONNECTION = map(
  {
    cluster: dnsLabel('Id of the remote cluster.'),
    /** The lane of this end. */
    lane: integer(0, MAX_ADDRESSED_LANE, 'Lane number of this node.'),
    /** The lane of the far end, in its cluster. Absent from releases up to 0.1: the same as `lane`. */
    remoteLane: integer(
      0,
      MAX_ADDRESSED_LANE,
      'Lane number of the remote gateway in its cluster; if absent, the same as lane.',
    ).optional(),
    /** metadata.name of the remote Endpoint. */
    endpoint: text('Name of the Endpoint of the remote gateway.', { maxLength: 253 }),
    state: relied(
      choice(['connecting', 'up', 'down'], 'State of the connection, as measured by probes inside the tunnel.'),
    ),
    message: text('Human-readable explanation of the state.', { maxLength: MAX_CONNECTION_MESSAGE_LENGTH }),
    /** Absent if it is not known, and if the connection is up and answers. */
    cause: text<ConnectionCause>(
      'Why the connection does not come up: NeitherCallable, AnswersLost or NoneAnswers; absent if unknown.',
      { maxLength: 63 },
    ).optional(),
    /**
     * True if the connection is up but is not used because it flaps; traffic takes other routes if there are any. Absent
     * means false.
     */
    held: flag(
      'True if the connection is up but unstable, so that traffic uses other connections if there are any.',
    ).optional(),
    /**
     * True if the connection is up, carries nothing, and is not probed until it carries something again. Absent means
     * false.
     */
    asleep: flag('True if the connection is up but idle, so that it is not probed until the next packet.').optional(),
    /** The address:port that the tunnel uses; absent while it is not known. */
    usingAddress: text('Remote address:port that the tunnel currently uses; absent if unknown.', {
      maxLength: 128,
    }).optional(),
    /** Whether the far end's address is not among its candidates: it is behind NAT. */
    usingNat: flag(
      'True if the remote gateway connects from an address that is not one of its candidates, as behind NAT.',
    ),
    /** The member whose gateway forwards the packets of the link. Absent: none does, or it is not known. */
    usingRelay: text('Id of the cluster whose gateway relays this tunnel; absent if no gateway does.', {
      maxLength: 63,
    }).optional(),
    rttMs: number('Round-trip time of the last probes, in milliseconds.', { minimum: 0 }).optional(),
    /** Share of the recent probes without an answer, 0 to 1. */
    loss: relied(number('Share of the last probes without an answer, 0 to 1.', { minimum: 0, maximum: 1 })).optional(),
    /**
     * Size in octets of the largest packet that reaches the far end. Absent from releases up to 0.1, and if not known.
     */
    mtu: integer(
      0,
      65_535,
      'Size of the largest packet that reaches the remote gateway, in bytes; absent if unknown.',
    ).optional(),
    /** The same for packets from the far end, as the far end reports it. */
    receiveMtu: integer(
      0,
      65_535,
      'Size of the largest packet that arrives from the remote gateway, in bytes, as reported by it.',
    ).optional(),
    handshakeAgeSeconds: number('Time since the last WireGuard handshake, in seconds.', { minimum: 0 }).optional(),
    /** The one in use first. Absent from earlier releases, and where all links together have too many. */
    candidates: list(
      CANDIDATE,
      'Ways by which the remote gateway may be reached; absent if unknown, or if there are too many tunnels.',
      MAX_LINK_CANDIDATES,
    ).optional(),
    rxBytes: integer(0, MAX_BYTES, 'Bytes received.'),
    txBytes: integer(0, MAX_BYTES, 'Bytes sent.'),
  },
  'A tunnel from this gateway to a gateway of another cluster.',
)

const STATUS = map(
  {
    version: text('Version of Sealane on this node.', { maxLength: 63 }),
    /** One entry for each device. */
    lanes: list(LANE, 'Lane devices of this node.', 256),
    connections: list(CONNECTION, 'Tunnels to other clusters.', 4096),
    /** Absent from earlier releases, and while there are none. */
    relays: list(KNOWN_RELAY, 'Relays that this gateway uses, or may use.', MAX_STATUS_RELAYS).optional(),
    /** RFC 3339: the time of the last write, at least every HEARTBEAT_MS. Absent from earlier releases. */
    heartbeatTime: timestamp(
      'Time of the last update. The gateway updates it every few seconds; if it is old, the status is out of date.',
    ).optional(),
    /** Connections that are up, of all: `2/3`. For `kubectl get`, which cannot count. */
    up: text('Number of tunnels that are up, of the total, such as 2/3.', { maxLength: 63 }).optional(),
    /** CONDITION_READY; the agent sets it to Unknown while the heartbeat does not change. */
    conditions: CONDITIONS.optional(),
    failure: text('Failure of the gateway; absent if it works.', {
      maxLength: MAX_FAILURE_LENGTH,
    }).optional(),
    /** The reason code of the failure (model/reasons). Absent from earlier releases. */
    failureReason: text('Reason code of the failure.', { maxLength: 63 }).optional(),
  },
  'State of the gateway. Written by the gateway of this node.',
)

/** Written by the gateway process of one node, status only. Cluster-scoped; metadata.name is the node. */
export const GATEWAY_FIELDS = object('State of the lanes of one node. metadata.name is the name of the Node.', {
  status: STATUS.optional(),
})
