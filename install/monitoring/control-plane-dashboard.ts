/** The dashboard about agents and the broker: contact, age of the replicas, state of the store. */
import { acting } from './alerts.ts'
import type { Dashboard, Panel } from './dashboard.ts'

function ofAgent(title: string, metric: string, more: Partial<Panel> = {}): Panel {
  const queries = [{ expr: `max by (member) (${acting(metric)})`, legend: '{{member}}' }]
  return { title, kind: 'timeseries', width: 8, queries, ...more }
}

function left(title: string, expr: string, legend: string): Panel {
  return { title, kind: 'timeseries', width: 12, unit: 's', queries: [{ expr: `${expr} - time()`, legend }] }
}

export const CONTROL_PLANE_DASHBOARD: Dashboard = {
  uid: 'sealane-control-plane',
  title: 'Sealane control plane',
  choices: [],
  panels: [
    ofAgent('Follows the broker (1: yes)', 'sealane_watch_live'),
    ofAgent('Publishes (1: yes)', 'sealane_publish_live'),
    {
      title: 'Age of the replica',
      kind: 'timeseries',
      width: 8,
      unit: 's',
      queries: [
        {
          expr: `time() - max by (member) (${acting('sealane_agent_broker_heard_timestamp_seconds > 0')})`,
          legend: '{{member}}',
        },
      ],
      help: 'Time since the last message of the broker.',
    },
    left(
      'Certificates of members: time left',
      `min by (member) (${acting('sealane_agent_certificate_expiry_timestamp_seconds > 0')})`,
      '{{member}}',
    ),
    left(
      'Certificates of the broker: time left',
      'min by (instance) (sealane_broker_certificate_expiry_timestamp_seconds)',
      '{{instance}}',
    ),
    ofAgent('Records in the replica', 'sealane_replica_records'),
    ofAgent('Records published', 'sealane_publish_records'),
    {
      title: 'Loops of agents that fail',
      kind: 'timeseries',
      width: 8,
      unit: 'ops',
      queries: [
        { expr: 'sum by (loop) (rate(sealane_agent_loop_failures_total[5m])) or vector(0)', legend: '{{loop}}' },
      ],
    },
    {
      title: 'Members by state',
      kind: 'timeseries',
      width: 8,
      queries: [{ expr: 'max by (state, clusterset) (sealane_broker_members)', legend: '{{clusterset}} {{state}}' }],
    },
    {
      title: 'Members with a stream, by replica',
      kind: 'timeseries',
      width: 8,
      queries: [{ expr: 'sum by (instance) (sealane_broker_connected_members)', legend: '{{instance}}' }],
    },
    {
      title: 'Replicas, as each sees them',
      kind: 'timeseries',
      width: 8,
      queries: [{ expr: 'max by (instance) (sealane_broker_replicas)', legend: '{{instance}}' }],
    },
    {
      title: 'Store answers (1: yes)',
      kind: 'timeseries',
      width: 8,
      queries: [{ expr: 'min by (instance, kind) (sealane_broker_store_usable)', legend: '{{instance}} {{kind}}' }],
    },
    {
      title: 'Time of a commit',
      kind: 'timeseries',
      width: 8,
      unit: 's',
      queries: [0.5, 0.99].map((q) => ({
        expr: `histogram_quantile(${q}, sum by (instance, le) (rate(sealane_broker_commit_seconds_bucket[5m])))`,
        legend: `{{instance}} p${q * 100}`,
      })),
    },
    {
      title: 'Commits, and those that failed',
      kind: 'timeseries',
      width: 8,
      unit: 'ops',
      queries: [
        { expr: 'sum by (instance) (rate(sealane_broker_commit_seconds_count[5m]))', legend: '{{instance}}' },
        { expr: 'sum by (instance) (rate(sealane_broker_commit_failures_total[5m]))', legend: '{{instance}} failed' },
      ],
    },
    {
      title: 'Fan-out: events encoded once, and handed to watchers',
      kind: 'timeseries',
      width: 12,
      unit: 'ops',
      queries: [
        { expr: 'sum by (instance) (rate(sealane_broker_encoded_events_total[5m]))', legend: '{{instance}} encoded' },
        {
          expr: 'sum by (instance) (rate(sealane_broker_delivered_events_total[5m]))',
          legend: '{{instance}} delivered',
        },
      ],
    },
    {
      title: 'Bytes of streams',
      kind: 'timeseries',
      width: 12,
      unit: 'Bps',
      queries: [
        {
          expr: 'sum by (instance, direction) (rate(sealane_broker_stream_bytes_total[5m]))',
          legend: '{{instance}} {{direction}}',
        },
      ],
    },
    {
      title: 'Shared ranges: used share',
      kind: 'timeseries',
      width: 8,
      unit: 'percentunit',
      queries: [{ expr: 'max by (range) (sealane_broker_range_used_ratio)', legend: '{{range}}' }],
    },
    {
      title: 'Quota of the member that uses the largest share',
      kind: 'timeseries',
      width: 8,
      unit: 'percentunit',
      queries: [{ expr: 'max by (resource) (sealane_broker_quota_most_used_ratio)', legend: '{{resource}}' }],
    },
    {
      title: 'Audit log: lines written, waiting, lost',
      kind: 'timeseries',
      width: 8,
      queries: [
        { expr: 'sum(rate(sealane_broker_audit_lines_total[5m]))', legend: 'written a second' },
        { expr: 'sum(sealane_broker_audit_waiting_lines)', legend: 'waiting' },
        { expr: 'sum(increase(sealane_broker_audit_lost_lines_total[1h]))', legend: 'lost in an hour' },
      ],
    },
    {
      title: 'Memory of all parts',
      kind: 'timeseries',
      width: 12,
      unit: 'bytes',
      queries: [
        {
          expr: 'process_resident_memory_bytes{job=~"(.*/)?sealane(-[a-z]+)?"}',
          legend: '{{job}} {{instance}}',
        },
      ],
    },
    {
      title: 'Processors of all parts',
      kind: 'timeseries',
      width: 12,
      queries: [
        {
          expr: 'rate(process_cpu_seconds_total{job=~"(.*/)?sealane(-[a-z]+)?"}[5m])',
          legend: '{{job}} {{instance}}',
        },
      ],
    },
  ],
}
