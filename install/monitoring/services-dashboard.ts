/** The dashboard about exports, imports, their delays, and DNS answers. */
import { acting } from './alerts.ts'
import type { Dashboard, Panel, Query } from './dashboard.ts'

/** Two quantiles of a histogram over all series. */
function quantiles(metric: string): readonly Query[] {
  return [0.5, 0.99].map((q) => ({
    expr: `histogram_quantile(${q}, sum by (le) (rate(${metric}_bucket[5m])))`,
    legend: `p${q * 100}`,
  }))
}

function delay(title: string, metric: string, help: string): Panel {
  return { title, kind: 'timeseries', width: 12, unit: 's', queries: quantiles(metric), help }
}

export const SERVICES_DASHBOARD: Dashboard = {
  uid: 'sealane-services',
  title: 'Sealane services and DNS',
  choices: [],
  panels: [
    {
      title: 'Exports by state',
      kind: 'timeseries',
      width: 12,
      queries: [
        { expr: `max by (member, state) (${acting('sealane_agent_exports')})`, legend: '{{member}} {{state}}' },
      ],
    },
    {
      title: 'Imported services',
      kind: 'timeseries',
      width: 12,
      queries: [{ expr: `max by (member) (${acting('sealane_agent_imports')})`, legend: '{{member}}' }],
    },
    {
      title: 'Exports of other clusters that are not imported',
      kind: 'timeseries',
      width: 12,
      queries: [
        { expr: `max by (member, reason) (${acting('sealane_agent_not_imported')})`, legend: '{{member}} {{reason}}' },
      ],
    },
    {
      title: 'Ports of clusterset IPs, by result of connections',
      kind: 'timeseries',
      width: 12,
      queries: [{ expr: 'max by (job, state) (sealane_routeagent_service_ports)', legend: '{{job}} {{state}}' }],
    },
    delay(
      'Export: time until the broker has it',
      'sealane_publish_delay_seconds',
      'First part of the time from an export to an import.',
    ),
    delay(
      'Import: time until the API server has it',
      'sealane_agent_import_delay_seconds',
      'Second part of the time from an export to an import.',
    ),
    {
      title: 'Problems of services',
      kind: 'table',
      width: 24,
      queries: [
        {
          expr: `max by (member, severity, code, namespace, subject) (${acting('sealane_member_problem_subject{kind=~"Service.*"}')})`,
        },
      ],
    },
    {
      title: 'Queries by answer',
      kind: 'timeseries',
      width: 12,
      unit: 'ops',
      queries: [{ expr: 'sum by (rcode) (rate(sealane_dns_queries_total[5m]))', legend: '{{rcode}}' }],
    },
    {
      title: 'Share of failed answers',
      kind: 'timeseries',
      width: 12,
      unit: 'percentunit',
      queries: [
        {
          expr:
            '(sum by (instance) (rate(sealane_dns_queries_total{rcode="SERVFAIL"}[5m])) or ' +
            '0 * sum by (instance) (rate(sealane_dns_queries_total[5m]))) / ' +
            'sum by (instance) (rate(sealane_dns_queries_total[5m]))',
          legend: '{{instance}}',
        },
      ],
    },
    {
      title: 'Time to answer',
      kind: 'timeseries',
      width: 12,
      unit: 's',
      queries: quantiles('sealane_dns_answer_seconds'),
      help: 'Measured for one packet in 64.',
    },
    {
      title: 'Queries to upstreams, and queries without an answer',
      kind: 'timeseries',
      width: 12,
      unit: 'ops',
      queries: [
        { expr: 'sum by (result) (rate(sealane_dns_forwarded_total[5m])) or vector(0)', legend: 'upstream {{result}}' },
        { expr: 'sum by (reason) (rate(sealane_dns_dropped_total[5m])) or vector(0)', legend: 'dropped {{reason}}' },
      ],
    },
    {
      title: 'Services that dns knows',
      kind: 'timeseries',
      width: 12,
      queries: [{ expr: 'sealane_dns_services', legend: '{{instance}}' }],
    },
    {
      title: 'dns has read everything (1: yes)',
      kind: 'timeseries',
      width: 12,
      queries: [{ expr: 'sealane_dns_synced', legend: '{{instance}}' }],
    },
  ],
}
