/** The screen of `sealane status`. Pure. Texts from other members are already printable (explain/). */
import type { ClusterOverview, Diagnosis, GatewayOverview, LinkOverview, Overview } from '../../explain/explain.ts'
import { type RankedFinding, durationText, subjectText } from '../../explain/facts/facts.ts'
import { type Column, renderTable } from '../context/context.ts'
import { agoText } from './gateway-rows.ts'

/** The maximum for one screen. `-o wide` has all rows. */
const MOST_CLUSTERS = 12
const MOST_PROBLEMS = 8

export interface ScreenOptions {
  /** Shows all clusters, links and problems. */
  readonly wide: boolean
}

export function statusScreen({ health, overview, problems }: Diagnosis, { wide }: ScreenOptions): string {
  const parts = [
    headText(health, overview),
    clusterTable(overview, wide),
    gatewayTable(overview.gateways),
    ...(wide ? [linkTable(overview.links)] : []),
    problemsText(overview, problems, wide),
  ]
  return parts.filter((part) => part !== '').join('\n')
}

/** What other members may call. */
export const EXPOSED = { exports: 'exported services', pods: 'all pods', nothing: 'nothing' } as const

function headText(health: Diagnosis['health'], overview: Overview): string {
  const { cluster, clusterset, exports: exported, imports, clusterDns, nodes, exposure } = overview
  const title = cluster === undefined ? 'not joined' : `${cluster} in clusterset ${clusterset ?? '-'}`
  const rows: [string, string][] = [
    ['versions', versionsText(overview)],
    ['broker', brokerText(overview)],
    [
      'cluster DNS',
      { answers: 'answers', fails: 'does not answer', unknown: 'unknown', none: 'none on a plain site' }[
        clusterDns.state
      ],
    ],
    ...nodeRows(nodes),
    ...notLinkedRows(overview),
    ...(exposure === undefined ? [] : [['exposed', EXPOSED[exposure]] satisfies [string, string]]),
    ['exports', exported === undefined ? 'unknown' : exportsText(exported)],
    ['imports', imports === undefined ? 'unknown' : importsText(imports)],
  ]
  return `${title}: ${health}\n${rows.map(([name, text]) => `${name.padEnd(13)}${text}\n`).join('')}`
}

/** Told only where nodes are left out, whose pods can neither call other clusters nor be called. */
function nodeRows(nodes: Overview['nodes']): [string, string][] {
  const others = Object.entries(nodes?.leftOut ?? {})
  if (nodes === undefined || others.length === 0) return []
  const text = others.map(([what, count]) => (count === 1 ? what : `${what} ×${count}`)).join(', ')
  return [['nodes', `${nodes.machines} with a routeagent; left out: ${text}`]]
}

/** That a cluster is missing in the table is no fault if the topology does not link it with this one. */
function notLinkedRows({ notLinked }: Overview): [string, string][] {
  if (notLinked === undefined) return []
  const { clusters, reason } = notLinked
  const rest = clusters.length - MOST_CLUSTERS
  const more = rest > 0 ? ` and ${rest} more` : ''
  return [['not linked', `${clusters.slice(0, MOST_CLUSTERS).join(', ')}${more} (${reason})`]]
}

function versionsText({ versions }: Overview): string {
  const byVersion = new Map<string, string[]>()
  for (const { part, version, count } of versions) {
    const text = count > 1 ? `${part} ×${count}` : part
    byVersion.set(version, [...(byVersion.get(version) ?? []), text])
  }
  const texts = [...byVersion]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([one, names]) => `${one} (${names.join(', ')})`)
  return texts.length === 0 ? 'unknown' : texts.join('; ')
}

function brokerText({ broker, takenAt }: Overview): string {
  const { state, since, addresses, failing = 0, certificateEnds, agent } = broker
  const by = agent === undefined ? '' : `, reported by ${agent}`
  if (state === 'unknown') return `unknown${by}`
  const forText = since === undefined ? '' : ` for ${between(since, takenAt)}`
  const known = addresses === undefined ? '' : `, ${addresses} address${addresses === 1 ? '' : 'es'} known`
  const bad = failing === 0 ? '' : ` (${failing} failing)`
  const ends = certificateEnds === undefined ? '' : `, certificate ends in ${between(takenAt, certificateEnds)}`
  return `${state}${forText}${known}${bad}${ends}${by}`
}

function between(from: string, to: string): string {
  const ms = Date.parse(to) - Date.parse(from)
  return Number.isNaN(ms) ? '?' : durationText(ms)
}

function exportsText({
  total,
  exported,
  pending,
  failed,
  conflicts,
  notImported,
}: NonNullable<Overview['exports']>): string {
  return counts(total, [
    [exported, 'exported'],
    [pending, 'waiting'],
    [failed, 'refused or invalid'],
    [conflicts, 'in conflict'],
    [notImported, 'imported by no cluster'],
  ])
}

function importsText({ total, usable, withoutBackends, notImported = {} }: NonNullable<Overview['imports']>): string {
  const others = Object.entries(notImported).map(([reason, count]) => `${reason} ×${count}`)
  const text = counts(total, [
    [usable ?? 0, 'can be called'],
    [withoutBackends ?? 0, 'without backends'],
  ])
  return others.length === 0 ? text : `${text}; not imported: ${others.join(', ')}`
}

function counts(total: number, parts: readonly (readonly [number, string])[]): string {
  const texts = parts.filter(([count]) => count > 0).map(([count, text]) => `${count} ${text}`)
  return texts.length === 0 ? String(total) : `${total}: ${texts.join(', ')}`
}

const RANK = { 'cut off': 0, unknown: 1, reached: 2 } as const

/** Clusters that are not reached come first. */
function clusterTable({ clusters }: Overview, wide: boolean): string {
  const sorted = [...clusters].sort((a, b) => RANK[a.state] - RANK[b.state])
  const shown = wide ? sorted : sorted.slice(0, MOST_CLUSTERS)
  const rest = sorted.length - shown.length
  const columns: readonly Column<ClusterOverview>[] = [
    { title: 'CLUSTER', cell: (row) => row.cluster },
    { title: 'STATE', cell: (row) => row.state },
    { title: 'LINKS', cell: (row) => `${row.linksUp}/${row.links}`, align: 'right' },
    ...quality<ClusterOverview>(),
    { title: 'BROKER', cell: (row) => row.contact },
    heardColumn<ClusterOverview>(),
  ]
  if (shown.length === 0) return ''
  return `${renderTable(columns, shown)}${rest > 0 ? `and ${rest} more: -o wide\n` : ''}`
}

function gatewayTable(gateways: readonly GatewayOverview[]): string {
  if (gateways.length === 0) return ''
  return renderTable<GatewayOverview>(
    [
      { title: 'GATEWAY', cell: (row) => row.node },
      { title: 'LANE', cell: (row) => String(row.lane ?? '-'), align: 'right' },
      { title: 'STATE', cell: (row) => row.state },
      { title: 'LINKS', cell: (row) => `${row.linksUp}/${row.links}`, align: 'right' },
      heardColumn<GatewayOverview>(),
    ],
    gateways,
  )
}

function linkTable(links: readonly LinkOverview[]): string {
  if (links.length === 0) return ''
  return renderTable<LinkOverview>(
    [
      { title: 'LINK', cell: (row) => `${row.node} lane ${row.lane}` },
      { title: 'TO', cell: (row) => `${row.cluster} lane ${row.remoteLane}` },
      { title: 'STATE', cell: (row) => row.state },
      { title: 'ADDRESS', cell: (row) => row.usingAddress ?? '-' },
      ...quality<LinkOverview>(),
      heardColumn<LinkOverview>(),
      { title: 'MESSAGE', cell: (row) => row.message },
    ],
    links,
  )
}

function quality<T extends Pick<LinkOverview, 'rttMs' | 'loss' | 'mtu'>>(): readonly Column<T>[] {
  return [
    { title: 'RTT', cell: ({ rttMs }) => (rttMs === undefined ? '-' : `${rttMs.toFixed(1)} ms`), align: 'right' },
    { title: 'LOSS', cell: ({ loss }) => (loss === undefined ? '-' : `${Math.round(loss * 100)} %`), align: 'right' },
    { title: 'MTU', cell: ({ mtu }) => String(mtu ?? '-'), align: 'right' },
  ]
}

function heardColumn<T extends { readonly heardSecondsAgo?: number }>(): Column<T> {
  const cell = ({ heardSecondsAgo }: T): string => (heardSecondsAgo === undefined ? '-' : agoText(heardSecondsAgo))
  return { title: 'HEARD', cell, align: 'right' }
}

/** The most severe problems come first. Only the first few are shown, unless `wide` is true. */
export function problemsText({ takenAt }: Overview, problems: readonly RankedFinding[], wide: boolean): string {
  if (problems.length === 0) return 'no problems\n'
  const shown = wide ? problems : problems.slice(0, MOST_PROBLEMS)
  const rest = problems.length - shown.length
  return `${shown.map((one) => problemText(one, takenAt)).join('')}${rest > 0 ? `and ${rest} more problems: -o wide\n` : ''}`
}

function problemText(
  { severity, reason, subject, seen, source, since, mend, consequences }: RankedFinding,
  now: string,
): string {
  const below = consequences.map(
    (one) => `${one.reason} ×${one.count} (${one.examples[0] ?? ''}${one.count > 1 ? ', …' : ''})`,
  )
  const lines = [
    `${severity}: ${reason}, ${subjectText(subject)}${since === undefined ? '' : `, for ${between(since, now)}`}`,
    `  seen:  ${seen} (${source})`,
    ...(below.length === 0 ? [] : [`  hence: ${below.join(', ')}`]),
    `  to do: ${mend}`,
  ]
  return `${lines.join('\n')}\n`
}

export const STATUS_FORMAT = 1

interface StatusDocument {
  readonly format: typeof STATUS_FORMAT
  readonly health: Diagnosis['health']
}

/** The output of `sealane status -o json`: one document whose fields never change their meaning. */
export function statusDocument({ health, overview, problems }: Diagnosis): StatusDocument & Record<string, unknown> {
  return { format: STATUS_FORMAT, health, ...overview, problems }
}

/** The exit codes of monitoring plugins. 3 is for a command that could not determine the health. */
export const EXIT_CODES: Readonly<Record<Diagnosis['health'], number>> = { healthy: 0, degraded: 1, down: 2 }
export const EXIT_UNKNOWN = 3
