/** Every metric of the gateway. */
import type { Counter, Gauge, Histogram, LabelledCounter, Metrics } from '../../runtime/metrics/metrics.ts'

export interface GatewayMetrics {
  readonly connectionUp: Gauge
  readonly connectionRtt: Gauge
  readonly connectionJitter: Gauge
  readonly connectionLoss: Gauge
  readonly connectionMtu: Gauge
  readonly handshakeAge: Gauge
  readonly receivedBytes: Gauge
  readonly sentBytes: Gauge
  /** Only for existing links: TransitionCounts. */
  readonly transitions: LabelledCounter
  readonly links: Gauge
  readonly relays: Gauge
  readonly laneMtu: Gauge
  readonly webDropped: Counter
  readonly twoWays: Counter
  readonly nat: Gauge
  readonly natLife: Gauge
  readonly refusals: Gauge
  readonly probesSent: Counter
  readonly probesAnswered: Counter
  readonly probesIgnored: Counter
  readonly rounds: Counter
  readonly roundDuration: Histogram
  readonly changes: Counter
  readonly packetsDropped: Counter
  readonly driftRepairs: Counter
}

const DEVICE = ['lane', 'remote_lane'] as const
const PEER = ['cluster', ...DEVICE] as const

/** Labels of a device: the lane numbers of this node and of the far ends. With the cluster they name a link. */
export function laneLabels({ ownLane, remoteLane }: { readonly ownLane: number; readonly remoteLane: number }) {
  return { lane: String(ownLane), remote_lane: String(remoteLane) }
}

export function gatewayMetrics(metrics: Metrics): GatewayMetrics {
  const gauge = (name: string, help: string, labels: readonly string[] = PEER): Gauge =>
    metrics.gauge({ name: `sealane_gateway_${name}`, help, labels })
  const counter = (name: string, help: string, labels: readonly string[]): LabelledCounter =>
    metrics.counter({ name: `sealane_gateway_${name}_total`, help, labels })
  return {
    connectionUp: gauge('connection_up', '1 while the peer answers probes over this link, 0 otherwise.'),
    connectionRtt: gauge('connection_rtt_seconds', 'Smoothed round-trip time of probes inside the tunnel.'),
    connectionJitter: gauge('connection_jitter_seconds', 'Smoothed variation of the round-trip time.'),
    connectionLoss: gauge(
      'connection_loss_ratio',
      'Share of probes without an answer among the last 20 to 50 since the link came up, 0 to 1.',
    ),
    connectionMtu: gauge('connection_mtu_bytes', 'Largest packet that reaches the peer, measured by padded probes.'),
    handshakeAge: gauge('handshake_age_seconds', 'Time since the last WireGuard handshake with the peer.'),
    receivedBytes: gauge(
      'received_bytes',
      'Bytes received from the peer since it was last created on the lane device.',
    ),
    sentBytes: gauge('sent_bytes', 'Bytes sent to the peer since it was last created on the lane device.'),
    transitions: counter('transitions', 'State changes of a connection, by new state.', [...PEER, 'state']),
    links: gauge(
      'links',
      'Links that are up, by rung: direct, port-mapped by a router, punched through NATs, relayed, or tcp-443.',
      ['rung'],
    ),
    relays: gauge(
      'relays',
      'Relays that this gateway uses, or may use, by what they carry (datagrams, tcp-443) and by state.',
      ['carries', 'state'],
    ),
    webDropped: counter('web_dropped_packets', 'Packets that waited too long for a relay on port 443.', []),
    twoWays: counter(
      'two_ways',
      'Times that packets of a link went two ways because it answered no probes, by how that ended: the first way answered, the link moved to the second, or went down, or time was over (unsettled).',
      ['ended'],
    ),
    nat: gauge(
      'nat',
      '1 for what is known of the NAT in front of this node: public, behind (of unknown kind), endpoint-independent, symmetric, or unknown; beside it filters-none, -addresses, -ports, hairpins, no-hairpins, cgnat, same-nat, same-lan, udp-rate-limited, udp-blocked.',
      ['kind'],
    ),
    natLife: gauge(
      'nat_mapping_seconds',
      'For how long the NAT in front of this node keeps a UDP mapping without packets, at least: 0, 10, 30, 60 or 120. Absent if it was not measured.',
      // Without a label it would be 0 instead of absent.
      ['protocol'],
    ),
    laneMtu: gauge('lane_mtu_bytes', 'MTU of the lane device.', DEVICE),
    refusals: gauge(
      'refusals',
      'Cluster and Endpoint objects that are not used because they are invalid or conflict with others.',
      [],
    ),
    probesSent: counter('probes_sent', 'Probes sent.', ['lane']),
    probesAnswered: counter('probes_answered', 'Answers to probes of this gateway.', ['lane']),
    probesIgnored: counter('probes_ignored', 'Packets on the probe port that are not a valid probe from a peer.', [
      'lane',
    ]),
    rounds: counter('rounds', 'Rounds of the loop that applies the plan to the kernel, by result.', ['result']),
    roundDuration: metrics.histogram({
      name: 'sealane_gateway_round_duration_seconds',
      help: 'Duration of a round of the loop that applies the plan to the kernel.',
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5],
    }),
    changes: counter('changes', 'Changes made to the kernel, by kind.', ['kind']),
    driftRepairs: counter(
      'drift_repairs',
      'Repairs of kernel objects of Sealane that another program changed, by object and by kind of change.',
      ['what', 'reason'],
    ),
    packetsDropped: counter(
      'packets_dropped',
      "Packets that the node's policy dropped: on their way into a lane, out of one, or to or from a lane's own address.",
      ['reason'],
    ),
  }
}
