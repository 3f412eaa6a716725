/** The description of Gateway. */
import { MAX_ADDRESSED_LANE, MAX_CONNECTION_MESSAGE_LENGTH, MAX_FAILURE_LENGTH } from '../values/values.ts'
import { CONDITIONS } from './conditions.ts'
import { choice, dnsLabel, flag, integer, list, map, number, object, relied, text, timestamp } from './fields.ts'

const MAX_BYTES = Number.MAX_SAFE_INTEGER

/**
 * Why a connection does not come up, as far as one end can tell. NeitherCallable: neither end can be called from
 * outside. AnswersLost: packets of the far end arrive, but ours do not reach it. NoneAnswers: packets arrive, but none
 * answers ours.
 */
export type ConnectionCause = 'NeitherCallable' | 'AnswersLost' | 'NoneAnswers'

const LANE = map(
  {
    lane: integer(0, MAX_ADDRESSED_LANE, 'Lane number of this node.'),
    /** The lane of the gateways that the device leads to. Absent from releases up to 0.1: the same as `lane`. */
    remoteLane: integer(
      0,
      MAX_ADDRESSED_LANE,
      'Lane number of the gateways that the device leads to; absent: the same.',
    ).optional(),
    device: text('Network device.', { maxLength: 15 }),
    mtu: integer(0, 65_535, 'Largest packet of the device.'),
    driver: text('What carries the lane, such as kernel or userspace WireGuard.', { maxLength: 63 }),
  },
  'A device of the lane that this node serves.',
)

const CONNECTION = map(
  {
    cluster: dnsLabel('Cluster id of the far end.'),
    /** The lane of this end. */
    lane: integer(0, MAX_ADDRESSED_LANE, 'Lane number of this node.'),
    /** The lane of the far end, in its cluster. Absent from releases up to 0.1: the same as `lane`. */
    remoteLane: integer(
      0,
      MAX_ADDRESSED_LANE,
      'Lane number of the far end in its cluster; absent: the same.',
    ).optional(),
    /** metadata.name of the remote Endpoint. */
    endpoint: text('Name of the Endpoint at the far end.', { maxLength: 253 }),
    state: relied(choice(['connecting', 'up', 'down'], 'As the probes inside the tunnel find it.')),
    message: text('The same for people.', { maxLength: MAX_CONNECTION_MESSAGE_LENGTH }),
    /** Absent if it is not known, or if the connection is up. */
    cause: text<ConnectionCause>(
      'What keeps it from coming up: NeitherCallable, AnswersLost, NoneAnswers; absent: not known.',
      { maxLength: 63 },
    ).optional(),
    /**
     * True if the connection is up but is not used because it flaps; traffic takes other routes if there are any. Absent
     * means false.
     */
    held: flag('It is up, and went down again and again: other ways are taken where there are any.').optional(),
    /** The address:port that the tunnel uses; absent while it is not known. */
    usingAddress: text('address:port that the tunnel really uses; absent while unknown.', {
      maxLength: 128,
    }).optional(),
    /** Whether the far end's address is not among its candidates: it is behind NAT. */
    usingNat: flag('The far end calls from an address that is none of its candidates.'),
    rttMs: number('Round trip of the last probes, milliseconds.', { minimum: 0 }).optional(),
    /** Share of the recent probes without an answer, 0 to 1. */
    loss: relied(number('Share of the last probes without an answer.', { minimum: 0, maximum: 1 })).optional(),
    /**
     * Size in octets of the largest packet that reaches the far end. Absent from releases up to 0.1, and if not known.
     */
    mtu: integer(0, 65_535, 'Octets of the largest packet that gets to the far end; absent: not known.').optional(),
    /** The same for packets from the far end, as the far end reports it. */
    receiveMtu: integer(0, 65_535, 'The same for what comes from there, as the far end says.').optional(),
    handshakeAgeSeconds: number('Time since the last WireGuard handshake, seconds.', { minimum: 0 }).optional(),
    rxBytes: integer(0, MAX_BYTES, 'Bytes received.'),
    txBytes: integer(0, MAX_BYTES, 'Bytes sent.'),
  },
  'A tunnel from this gateway to one of another cluster.',
)

const STATUS = map(
  {
    version: text('Version of Sealane on this node.', { maxLength: 63 }),
    /** One entry for each device. */
    lanes: list(LANE, 'Devices of this node.', 256),
    connections: list(CONNECTION, 'Tunnels to other clusters.', 4096),
    /** RFC 3339: the time of the last write, at least every HEARTBEAT_MS. Absent from earlier releases. */
    heartbeatTime: timestamp(
      'When this was written: every few seconds. An old one says nothing about the present.',
    ).optional(),
    /** Connections that are up, of all: `2/3`. For `kubectl get`, which cannot count. */
    up: text('Tunnels that are up, of all, such as 2/3.', { maxLength: 63 }).optional(),
    /** CONDITION_READY; the agent sets it to Unknown while the heartbeat does not change. */
    conditions: CONDITIONS.optional(),
    failure: text('What keeps the gateway from working; absent when nothing does.', {
      maxLength: MAX_FAILURE_LENGTH,
    }).optional(),
    /** The reason code of the failure (model/reasons). Absent from earlier releases. */
    failureReason: text('Its name, as in the list of reasons.', { maxLength: 63 }).optional(),
  },
  'Written by the gateway of this node.',
)

/** Written by the gateway process of one node, status only. Cluster-scoped; metadata.name is the node. */
export const GATEWAY_FIELDS = object('How the lanes of one node do. metadata.name is the name of the Node.', {
  status: STATUS.optional(),
})
