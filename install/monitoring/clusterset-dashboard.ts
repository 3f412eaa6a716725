/** The dashboard about the clusterset: which clusters reach each other, how well, and what is wrong where. */
import { acting, ofMember } from './alerts.ts'
import type { Dashboard } from './dashboard.ts'

const LINKS = (metric: string, by: 'max' | 'min'): string => `${by} by (member, cluster) (${ofMember(metric)})`

export const CLUSTERSET_DASHBOARD: Dashboard = {
  uid: 'sealane-clusterset',
  title: 'Sealane clusterset',
  choices: [],
  panels: [
    {
      title: 'Clusters',
      kind: 'stat',
      width: 6,
      queries: [{ expr: 'count(count by (member) (sealane_member_info))' }],
      help: 'Members of which Prometheus scrapes at least one part.',
    },
    {
      title: 'Pairs of clusters that reach each other',
      kind: 'stat',
      width: 6,
      queries: [{ expr: `sum(${LINKS('sealane_gateway_connection_up', 'max')})` }],
    },
    {
      title: 'Pairs of clusters that do not reach each other',
      kind: 'stat',
      width: 6,
      queries: [{ expr: `count(${LINKS('sealane_gateway_connection_up', 'max')} == 0) or vector(0)` }],
    },
    {
      title: 'Problems that affect users',
      kind: 'stat',
      width: 6,
      queries: [{ expr: `sum(${acting('sealane_member_problems{severity="down"}')}) or vector(0)` }],
    },
    {
      title: 'Which cluster reaches which (1: yes)',
      kind: 'matrix',
      width: 8,
      by: ['member', 'cluster'],
      queries: [{ expr: LINKS('sealane_gateway_connection_up', 'max') }],
    },
    {
      title: 'Round trip of the best link',
      kind: 'matrix',
      width: 8,
      unit: 's',
      by: ['member', 'cluster'],
      queries: [{ expr: LINKS('sealane_gateway_connection_rtt_seconds', 'min') }],
    },
    {
      title: 'Loss of the best link',
      kind: 'matrix',
      width: 8,
      unit: 'percentunit',
      by: ['member', 'cluster'],
      queries: [{ expr: LINKS('sealane_gateway_connection_loss_ratio', 'min') }],
    },
    {
      title: 'Availability over the last day',
      kind: 'matrix',
      width: 12,
      unit: 'percentunit',
      by: ['member', 'cluster'],
      queries: [{ expr: LINKS('avg_over_time(sealane_gateway_connection_up[1d])', 'max') }],
      help: 'Share of the time in which the best link was up.',
    },
    {
      title: 'Releases',
      kind: 'table',
      width: 12,
      queries: [{ expr: 'count by (member, version) (sealane_member_info)' }],
    },
    {
      title: 'Problems and their subjects',
      kind: 'table',
      width: 24,
      queries: [
        {
          expr: `max by (member, severity, code, kind, namespace, subject) (${acting('sealane_member_problem_subject')})`,
        },
      ],
      help: 'The worst 20 of each cluster, as in sealane status. docs/troubleshooting.md explains the codes.',
    },
    {
      title: 'Problems by code',
      kind: 'timeseries',
      width: 24,
      queries: [
        {
          expr: `sum by (member, code) (${acting('sealane_member_problems')})`,
          legend: '{{member}} {{code}}',
        },
      ],
    },
  ],
}
