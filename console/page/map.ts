/** The map of clusters: a drawing, and a table that says the same. */
import { type VNode, h } from 'preact'
import type { ClusterCard, GatewayRow, LinkRow } from '../state/state.ts'
import {
  AsOf,
  Badge,
  type Column,
  Frame,
  Incomplete,
  type Props,
  RowTable,
  Since,
  filtered,
  msText,
  percentText,
  trafficText,
} from './elements.ts'
import type { PageModel } from './model.ts'
import { type MapRow, type PlannedMap, planMap } from './plan-map.ts'

/** Of the table. The section of links has them all. */
const MOST_ROWS = 200

/** What the map shows now, of the rows that match the filter. */
export function mapOf(model: PageModel): PlannedMap {
  const rows = {
    clusters: filtered<ClusterCard>(model, 'clusters').rows,
    gateways: filtered<GatewayRow>(model, 'gateways').rows,
    links: filtered<LinkRow>(model, 'links').rows,
  }
  const filter = model.filter.value.trim()
  // A filter that only a cluster or only its links match still leaves both ends of the links on the map.
  const all = filter === '' ? rows : withEnds(model, rows)
  const stale = model.sections.links.value?.stale
  const areLinksKnown = stale === undefined || stale.at !== undefined
  return planMap({ ...all, areLinksKnown }, model.regions.value)
}

interface MapInput {
  readonly clusters: readonly ClusterCard[]
  readonly gateways: readonly GatewayRow[]
  readonly links: readonly LinkRow[]
}

function withEnds({ sections: { clusters } }: PageModel, rows: MapInput): MapInput {
  const called = new Set(rows.links.map(({ cluster }) => cluster))
  const matching = new Set(rows.clusters.map(({ cluster }) => cluster))
  const ends = (clusters.value?.rows ?? []).filter(({ cluster }) => called.has(cluster) || matching.has(cluster))
  return { ...rows, clusters: ends }
}

/** A drawing of more would be too high for a canvas. */
const MOST_OPEN = 3

/** Shows or hides the clusters of a region. The region that was opened first closes for the fourth. */
export function toggleRegion(model: PageModel, region: string): void {
  const open = new Set(model.regions.value)
  if (!open.delete(region)) open.add(region)
  model.regions.value = new Set([...open].slice(-MOST_OPEN))
}

export function ClusterMap({ model }: Props): VNode {
  const live = model.sections.about.value?.live ?? true
  const { clusters, links } = model.sections
  const { command, commands } = links.value ?? {}
  const isKnown = clusters.value !== undefined
  const stale = links.value?.stale ?? clusters.value?.stale
  return h(
    Frame,
    { model, name: 'map', command, commands, age: h(AsOf, { model, at: 'facts', live }) },
    h(Incomplete, { stale }),
    isKnown ? h(Drawn, { model }) : h('p', {}, 'Waiting for facts.'),
  )
}

function Drawn({ model }: Props): VNode {
  const { rows, text } = mapOf(model)
  const shown = rows.slice(0, MOST_ROWS)
  const columns: readonly Column<MapRow>[] = [
    { title: 'From', cell: ({ from }) => from },
    { title: 'To', cell: (row) => h(FarEnd, { model, row }) },
    {
      title: 'State',
      cell: ({ state, links }) => h(Badge, { state, word: state === 'down' && links === 0 ? 'without links' : state }),
    },
    { title: 'Links up', cell: ({ up, links }) => `${up} of ${links}`, class: 'number' },
    { title: 'RTT', cell: ({ rttMs }) => msText(rttMs), class: 'number' },
    { title: 'Loss', cell: ({ loss }) => percentText(loss), class: 'number' },
    { title: 'Cable', cell: ({ cables }) => (cables.length === 0 ? '-' : cables.join(', ')) },
    { title: 'Since', cell: ({ since }) => (since === undefined ? 'before' : h(Since, { model, at: since })) },
    { title: 'Data', cell: ({ traffic }) => trafficText(traffic), class: 'number' },
  ]
  return h(
    'div',
    { class: 'map-and-table' },
    h('div', {
      ...{ class: 'map', role: 'img', 'aria-label': `Map: ${text}. The table below says the same.` },
      ref: model.drawings?.map,
    }),
    rows.length === 0
      ? h('p', {}, 'No other cluster is known.')
      : h(RowTable<MapRow>, { model, caption: 'The map as a table', columns, rows: shown, keyOf: ({ key }) => key }),
    rows.length > shown.length
      ? h('p', { class: 'soft' }, `and ${rows.length - shown.length} more rows; see the section Links`)
      : null,
  )
}

function FarEnd({ model, row: { to, region, isOpen } }: Props & { readonly row: MapRow }): VNode | string {
  if (region === undefined || isOpen === undefined) return to
  return h(
    'button',
    { type: 'button', 'aria-expanded': String(isOpen), onClick: () => toggleRegion(model, region) },
    `${isOpen ? 'Close' : 'Open'} region ${to}`,
  )
}
