/** The dashboard about links, their traffic, and dropped packets. */
import type { Dashboard, Panel } from './dashboard.ts'

const LINK = '{{instance}} lane {{lane}} to {{cluster}} lane {{remote_lane}}'

type Unit = NonNullable<Panel['unit']>

function ofLinks(title: string, metric: string, unit: Unit, width: Panel['width'] = 12): Panel {
  const expr = `${metric}{cluster=~"$cluster"}`
  return { title, kind: 'timeseries', width, unit, queries: [{ expr, legend: LINK }] }
}

export const LANES_DASHBOARD: Dashboard = {
  uid: 'sealane-lanes',
  title: 'Sealane lanes',
  choices: [{ label: 'cluster', metric: 'sealane_gateway_connection_up' }],
  panels: [
    {
      title: 'Links that are up',
      kind: 'stat',
      width: 6,
      queries: [{ expr: 'sum(sealane_gateway_connection_up{cluster=~"$cluster"})' }],
    },
    {
      title: 'All links',
      kind: 'stat',
      width: 6,
      queries: [{ expr: 'count(sealane_gateway_connection_up{cluster=~"$cluster"})' }],
    },
    {
      title: 'Availability of links, last hour',
      kind: 'stat',
      width: 6,
      unit: 'percentunit',
      queries: [{ expr: 'avg(avg_over_time(sealane_gateway_connection_up{cluster=~"$cluster"}[1h]))' }],
    },
    {
      title: 'Nodes without a gateway',
      kind: 'stat',
      width: 6,
      queries: [{ expr: 'count(sealane_routeagent_path_gateways{cluster=~"$cluster"} == 0) or vector(0)' }],
    },
    ofLinks('Up', 'sealane_gateway_connection_up', 'short'),
    ofLinks('Loss of probes', 'sealane_gateway_connection_loss_ratio', 'percentunit'),
    ofLinks('Round trip', 'sealane_gateway_connection_rtt_seconds', 's'),
    ofLinks('Jitter', 'sealane_gateway_connection_jitter_seconds', 's'),
    ofLinks('Age of the handshake', 'sealane_gateway_handshake_age_seconds', 's'),
    ofLinks('Largest packet', 'sealane_gateway_connection_mtu_bytes', 'bytes'),
    {
      title: 'Received',
      kind: 'timeseries',
      width: 12,
      unit: 'Bps',
      queries: [{ expr: 'rate(sealane_gateway_received_bytes{cluster=~"$cluster"}[5m])', legend: LINK }],
    },
    {
      title: 'Sent',
      kind: 'timeseries',
      width: 12,
      unit: 'Bps',
      queries: [{ expr: 'rate(sealane_gateway_sent_bytes{cluster=~"$cluster"}[5m])', legend: LINK }],
    },
    {
      title: 'Links that changed, last hour',
      kind: 'timeseries',
      width: 12,
      queries: [
        {
          expr: 'sum by (cluster, state) (increase(sealane_gateway_transitions_total{cluster=~"$cluster"}[1h]))',
          legend: '{{cluster}} {{state}}',
        },
      ],
    },
    {
      title: 'Gateways in use by nodes',
      kind: 'timeseries',
      width: 12,
      queries: [
        { expr: 'sealane_routeagent_path_gateways{cluster=~"$cluster"}', legend: '{{instance}} to {{cluster}}' },
      ],
    },
    {
      title: 'Packets dropped by policy',
      kind: 'timeseries',
      width: 12,
      unit: 'ops',
      queries: [
        {
          expr: 'sum by (job, reason) (rate(sealane_gateway_packets_dropped_total[5m]))',
          legend: 'gateway {{reason}}',
        },
        {
          expr: 'sum by (job, reason) (rate(sealane_routeagent_packets_dropped_total[5m]))',
          legend: 'routeagent {{reason}}',
        },
      ],
      help: 'By nftables on the nodes. docs/troubleshooting.md explains each reason.',
    },
    {
      title: 'Changes of other programs that were undone',
      kind: 'timeseries',
      width: 12,
      queries: [
        {
          expr: 'sum by (job) (increase(sealane_gateway_drift_repairs_total[1h])) or vector(0)',
          legend: 'gateway {{job}}',
        },
        {
          expr: 'sum by (job) (increase(sealane_routeagent_drift_repairs_total[1h])) or vector(0)',
          legend: 'routeagent {{job}}',
        },
      ],
    },
    {
      title: 'Rounds of gateways',
      kind: 'timeseries',
      width: 12,
      unit: 'ops',
      queries: [
        {
          expr: 'sum by (instance, result) (rate(sealane_gateway_rounds_total[5m]))',
          legend: '{{instance}} {{result}}',
        },
      ],
    },
    {
      title: 'Rounds of nodes',
      kind: 'timeseries',
      width: 12,
      unit: 'ops',
      queries: [
        {
          expr: 'sum by (instance, result) (rate(sealane_routeagent_runs_total[5m]))',
          legend: '{{instance}} {{result}}',
        },
      ],
    },
  ],
}
