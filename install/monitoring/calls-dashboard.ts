/** The dashboard about calls: rate, errors, connect times and octets, by service, calling namespace and cluster. */
import type { Dashboard, Panel } from './dashboard.ts'

/** By what calls are summed, the metrics that have this label, and what the panels may be limited to. */
interface Signals {
  readonly label: 'service' | 'caller' | 'cluster'
  /** At the end of each title. */
  readonly title: string
  readonly metrics: Readonly<Record<'calls' | 'ends' | 'times' | 'octets', string>>
  readonly chosen: string
  /** Of connect times, which have fewer labels. */
  readonly chosenTimes: string
}

const PREFIX = 'sealane_routeagent'
const BOTH = 'service=~"$service", cluster=~"$cluster"'
const CALLS = {
  calls: `${PREFIX}_calls_total`,
  ends: `${PREFIX}_call_ends_total`,
  octets: `${PREFIX}_call_bytes_total`,
}

const SIGNALS: readonly Signals[] = [
  {
    ...{ label: 'service', title: 'by service', chosen: BOTH, chosenTimes: 'service=~"$service"' },
    metrics: { ...CALLS, times: `${PREFIX}_service_connect_seconds` },
  },
  {
    ...{
      label: 'caller',
      title: 'by calling namespace',
      chosen: 'caller=~"$caller"',
      chosenTimes: 'caller=~"$caller"',
    },
    metrics: {
      calls: `${PREFIX}_caller_calls_total`,
      ends: `${PREFIX}_caller_call_ends_total`,
      times: `${PREFIX}_caller_connect_seconds`,
      octets: `${PREFIX}_caller_bytes_total`,
    },
  },
  {
    ...{ label: 'cluster', title: 'by exporting cluster', chosen: BOTH, chosenTimes: 'cluster=~"$cluster"' },
    metrics: { ...CALLS, times: `${PREFIX}_connect_seconds` },
  },
]

function panelsOf({ label, title, metrics, chosen, chosenTimes }: Signals): readonly Panel[] {
  const legend = `{{${label}}}`
  const rate = (metric: string, only: string): string => `sum by (${label}) (rate(${metric}{${only}}[5m]))`
  const calls = (outcome: string): string => rate(metrics.calls, `outcome="${outcome}", ${chosen}`)
  // Nothing is shown where there were no calls. Of calls without any refusal there is no series of refusals.
  const share = (part: string, all: string): string => `(${part} or 0 * ${all}) / (${all} > 0)`
  const ends = rate(metrics.ends, chosen)
  return [
    {
      ...{ title: `Calls ${title}`, kind: 'timeseries', width: 12, unit: 'ops' },
      queries: [{ expr: calls('opened'), legend }],
    },
    {
      ...{ title: `Share of calls with errors ${title}`, kind: 'timeseries', width: 12, unit: 'percentunit' },
      help: 'Timed out: the share of a sample of the calls that ended, which ended for want of an answer or acknowledgement. Others: of all calls.',
      queries: [
        { expr: share(calls('refused'), calls('opened')), legend: `${legend} refused` },
        { expr: share(calls('unanswered'), calls('opened')), legend: `${legend} unanswered` },
        { expr: share(rate(metrics.ends, `end="timed_out", ${chosen}`), ends), legend: `${legend} timed out` },
      ],
    },
    {
      ...{ title: `Connect times ${title}`, kind: 'timeseries', width: 12, unit: 's' },
      help: 'From SYN to SYN-ACK, of a sample of the calls.',
      queries: [0.5, 0.9, 0.99].map((q) => ({
        expr: `histogram_quantile(${q}, sum by (le, ${label}) (rate(${metrics.times}_bucket{${chosenTimes}}[5m])))`,
        legend: `${legend} p${q * 100}`,
      })),
    },
    {
      ...{ title: `Octets ${title}`, kind: 'timeseries', width: 12, unit: 'Bps' },
      queries: [
        { expr: rate(metrics.octets, `way="sent", ${chosen}`), legend: `${legend} sent` },
        { expr: rate(metrics.octets, `way="received", ${chosen}`), legend: `${legend} received` },
      ],
    },
  ]
}

export const CALLS_DASHBOARD: Dashboard = {
  uid: 'sealane-calls',
  title: 'Sealane calls',
  choices: [
    { label: 'service', metric: CALLS.calls },
    { label: 'caller', metric: `${PREFIX}_caller_calls_total` },
    { label: 'cluster', metric: CALLS.calls },
  ],
  panels: [
    ...SIGNALS.flatMap(panelsOf),
    {
      ...{ title: 'Calls that nodes had no room to count', kind: 'timeseries', width: 12, unit: 'ops' },
      queries: [{ expr: `sum by (instance) (rate(${PREFIX}_calls_uncounted_total[5m]))`, legend: '{{instance}}' }],
    },
  ],
}
