/** Alerts about gateways, their links, and how nodes reach them. */
import { type AlertGroup, acting, ofMember } from './alert.ts'

const LINK =
  'gateway lane {{ $labels.lane }} ({{ $labels.instance }}) to {{ $labels.cluster }} lane {{ $labels.remote_lane }}'

export const LANE_ALERTS: AlertGroup = {
  name: 'sealane-lanes',
  about: 'member',
  alerts: [
    {
      name: 'SealaneClusterUnreachable',
      severity: 'critical',
      expr: `max by (member, cluster) (${ofMember('sealane_gateway_connection_up')}) == 0`,
      for: '1m',
      summary: '{{ $labels.member }} does not reach {{ $labels.cluster }}',
      says: 'No link of any gateway of {{ $labels.member }} to {{ $labels.cluster }} is up.',
      code: 'ClusterCutOff',
    },
    {
      name: 'SealaneLinkDown',
      severity: 'warning',
      expr: 'sealane_gateway_connection_up == 0',
      for: '2m',
      summary: `Link down: ${LINK}`,
      says: 'The far end answers no probes over this link. Others may carry the traffic.',
      code: 'LaneProbeTimeout',
    },
    {
      name: 'SealaneLinkLossy',
      severity: 'warning',
      expr: 'sealane_gateway_connection_loss_ratio > 0.1 and sealane_gateway_connection_up == 1',
      for: '5m',
      summary: `Link loses packets: ${LINK}`,
      says: '{{ $value | humanizePercentage }} of the last probes got no answer.',
      code: 'LinkLossy',
    },
    {
      name: 'SealaneLinkSlow',
      severity: 'warning',
      expr:
        'sealane_gateway_connection_rtt_seconds > ' +
        '2 * avg_over_time(sealane_gateway_connection_rtt_seconds[1d] offset 30m) + 0.02',
      for: '10m',
      summary: `Link slower than it was: ${LINK}`,
      says: 'Its round trip takes {{ $value | humanizeDuration }}: more than twice what it took over the last day.',
      code: 'LinkSlow',
    },
    {
      name: 'SealaneLinkFlapping',
      severity: 'warning',
      expr:
        'sum by (job, instance, cluster, lane, remote_lane) ' +
        '(increase(sealane_gateway_transitions_total{state="down"}[15m])) > 3',
      for: '0m',
      summary: `Link goes down again and again: ${LINK}`,
      says: 'It went down {{ $value | humanize }} times in 15 minutes.',
      code: 'LinkFlaps',
    },
    {
      name: 'SealaneHandshakeOld',
      severity: 'warning',
      expr: 'sealane_gateway_handshake_age_seconds > 240',
      for: '1m',
      summary: `No handshake: ${LINK}`,
      says: 'The last one is {{ $value | humanizeDuration }} old. Keys are used for three minutes at most.',
      code: 'LaneProbeTimeout',
    },
    {
      name: 'SealaneNodeCutOff',
      severity: 'warning',
      expr: 'sealane_routeagent_path_gateways == 0',
      for: '5m',
      summary: 'A node ({{ $labels.instance }}) has no gateway towards {{ $labels.cluster }}',
      says: 'Pods of this node do not reach {{ $labels.cluster }}.',
      code: 'NodesCutOff',
    },
    {
      name: 'SealaneGatewaysNotRedundant',
      severity: 'warning',
      expr:
        'max by (member, code) ' +
        `(${acting('sealane_member_problems{code=~"OneGatewayOnly|GatewaySilent|GatewayCutOff|GatewayNodeSilent|NoGateway"}')}) > 0`,
      for: '10m',
      summary: '{{ $labels.member }} has no second gateway that carries',
      says: 'The next loss of a gateway, or this one, cuts the cluster off.',
      code: { label: 'code' },
    },
    {
      name: 'SealaneGatewayStatusOld',
      severity: 'warning',
      expr: 'sealane_agent_stale_gateways > 0 or sealane_routeagent_stale_gateways > 0',
      for: '2m',
      summary: '{{ $value | humanize }} gateways have stopped to report ({{ $labels.instance }})',
      says: 'Their Gateway objects are old: what these say of links is not known to be so.',
      code: 'GatewaySilent',
    },
    {
      name: 'SealanePacketsDropped',
      severity: 'info',
      expr:
        'sum by (job, reason) (rate(sealane_gateway_packets_dropped_total[5m])) > 5 or ' +
        'sum by (job, reason) (rate(sealane_routeagent_packets_dropped_total[5m])) > 5',
      for: '10m',
      summary: 'Packets are dropped: {{ $labels.reason }}',
      says: '{{ $value | humanize }} packets a second are refused by the policy of the nodes.',
      code: { label: 'reason' },
    },
  ],
}
