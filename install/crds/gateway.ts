/** CRD of Gateway: how the lanes of one node do (model/objects.ts). Status only. */
import { MAX_CONNECTION_MESSAGE_LENGTH, MAX_FAILURE_LENGTH } from '../../model/status-text.ts'
import { CONDITIONS } from './condition-schema.ts'
import { objectSchema } from './custom-resource.ts'
import { dnsLabel, flag, integer, list, map, number, text, time } from './schema.ts'
import { sealaneCrd } from './sealane-kind.ts'

const MAX_BYTES = Number.MAX_SAFE_INTEGER

const lane = map(
  'A device of the lane that this node serves.',
  {
    lane: integer('Lane number of this node.', 0, 255),
    remoteLane: integer('Lane number of the gateways that the device leads to; absent: the same.', 0, 255),
    device: text('Network device.', { maxLength: 15 }),
    mtu: integer('Largest packet of the device.', 0, 65_535),
    driver: text('What carries the lane, such as kernel or userspace WireGuard.', { maxLength: 63 }),
  },
  ['remoteLane'],
)

const connection = map(
  'A tunnel from this gateway to one of another cluster.',
  {
    cluster: dnsLabel('Cluster id of the far end.'),
    lane: integer('Lane number of this node.', 0, 255),
    remoteLane: integer('Lane number of the far end in its cluster; absent: the same.', 0, 255),
    endpoint: text('Name of the Endpoint at the far end.', { maxLength: 253 }),
    state: text('As the probes inside the tunnel find it.', { enum: ['connecting', 'up', 'down'] }),
    message: text('The same for people.', { maxLength: MAX_CONNECTION_MESSAGE_LENGTH }),
    cause: text('What keeps it from coming up: NeitherCallable, AnswersLost, NoneAnswers; absent: not known.', {
      maxLength: 63,
    }),
    held: flag('It is up, and went down again and again: other ways are taken where there are any.'),
    usingAddress: text('address:port that the tunnel really uses; absent while unknown.', { maxLength: 128 }),
    usingNat: flag('The far end calls from an address that is none of its candidates.'),
    rttMs: number('Round trip of the last probes, milliseconds.', { minimum: 0 }),
    loss: number('Share of the last probes without an answer.', { minimum: 0, maximum: 1 }),
    mtu: integer('Octets of the largest packet that gets to the far end; absent: not known.', 0, 65_535),
    receiveMtu: integer('The same for what comes from there, as the far end says.', 0, 65_535),
    handshakeAgeSeconds: number('Time since the last WireGuard handshake, seconds.', { minimum: 0 }),
    rxBytes: integer('Bytes received.', 0, MAX_BYTES),
    txBytes: integer('Bytes sent.', 0, MAX_BYTES),
  },
  ['remoteLane', 'cause', 'held', 'usingAddress', 'rttMs', 'loss', 'mtu', 'receiveMtu', 'handshakeAgeSeconds'],
)

const gatewayStatus = map(
  'Written by the gateway of this node.',
  {
    version: text('Version of Sealane on this node.', { maxLength: 63 }),
    lanes: list('Devices of this node.', lane, 256),
    connections: list('Tunnels to other clusters.', connection, 4096),
    heartbeatTime: time('When this was written: every few seconds. An old one says nothing about the present.'),
    up: text('Tunnels that are up, of all, such as 2/3.', { maxLength: 63 }),
    conditions: CONDITIONS,
    failure: text('What keeps the gateway from working; absent when nothing does.', { maxLength: MAX_FAILURE_LENGTH }),
    failureReason: text('Its name, as in the list of reasons.', { maxLength: 63 }),
  },
  ['heartbeatTime', 'up', 'conditions', 'failure', 'failureReason'],
)

/** Not `gtw` or `gw`: those belong to Gateway API and to Istio. */
const SHORT_NAMES = ['slgateway']

export const GATEWAY = sealaneCrd({
  kind: 'Gateway',
  plural: 'gateways',
  shortNames: SHORT_NAMES,
  columns: [
    { name: 'Lane', type: 'integer', jsonPath: '.status.lanes[0].lane' },
    { name: 'Up', type: 'string', jsonPath: '.status.up' },
    { name: 'Ready', type: 'string', jsonPath: '.status.conditions[?(@.type=="Ready")].status' },
    { name: 'Reason', type: 'string', jsonPath: '.status.conditions[?(@.type=="Ready")].reason' },
    { name: 'Heard', type: 'date', jsonPath: '.status.heartbeatTime' },
    { name: 'Driver', type: 'string', jsonPath: '.status.lanes[0].driver' },
    { name: 'MTU', type: 'integer', jsonPath: '.status.lanes[0].mtu', priority: 1 },
    { name: 'Failure', type: 'string', jsonPath: '.status.failure' },
    { name: 'Version', type: 'string', jsonPath: '.status.version', priority: 1 },
  ],
  schema: objectSchema(
    'How the lanes of one node do. metadata.name is the name of the Node.',
    { status: gatewayStatus },
    [],
  ),
})
