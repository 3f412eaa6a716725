/**
 * Describes Grafana dashboards as data: what a panel shows, and its width. Panels are placed in the order of the list,
 * from left to right and then down.
 */

export interface Query {
  readonly expr: string
  /** A Grafana legend such as `{{cluster}}`. Not for tables. */
  readonly legend?: string
}

export interface Panel {
  readonly title: string
  readonly kind: 'timeseries' | 'stat' | 'table' | 'matrix'
  readonly queries: readonly Query[]
  /** Out of 24 columns. */
  readonly width: 6 | 8 | 12 | 24
  /** Grafana's name of a unit. */
  readonly unit?: 's' | 'ops' | 'Bps' | 'bytes' | 'percentunit' | 'short' | 'dateTimeFromNow'
  /** One sentence for a new reader. */
  readonly help?: string
  /** For a matrix: the label of the rows, and that of the columns. */
  readonly by?: readonly [rows: string, columns: string]
}

export interface Dashboard {
  readonly uid: `sealane-${string}`
  readonly title: string
  /** Labels to filter by, each with a metric that has it. Expressions use them as `$cluster`. */
  readonly choices: readonly { readonly label: string; readonly metric: string }[]
  readonly panels: readonly Panel[]
}

const COLUMNS = 24
/** In rows of the grid. */
const HEIGHTS = { timeseries: 8, stat: 4, table: 9, matrix: 9 } as const
const DATASOURCE = { type: 'prometheus', uid: '${datasource}' }

/** The JSON model that Grafana imports. */
export function dashboardModel({ uid, title, choices, panels }: Dashboard): Readonly<Record<string, unknown>> {
  const places = placesOf(panels)
  return {
    uid,
    title,
    tags: ['sealane'],
    schemaVersion: 39,
    version: 1,
    editable: true,
    graphTooltip: 1,
    refresh: '30s',
    time: { from: 'now-3h', to: 'now' },
    templating: { list: [datasourceVariable(), ...choices.map(choiceVariable)] },
    annotations: { list: [] },
    links: [{ type: 'dashboards', title: 'Sealane', tags: ['sealane'], asDropdown: true, includeVars: true }],
    panels: panels.map((panel, i) => panelModel(panel, { id: i + 1, gridPos: places[i] })),
  }
}

function datasourceVariable(): object {
  return { name: 'datasource', label: 'Prometheus', type: 'datasource', query: 'prometheus', hide: 0 }
}

function choiceVariable({ label, metric }: Dashboard['choices'][number]): object {
  const query = `label_values(${metric}, ${label})`
  const all = { includeAll: true, multi: true, allValue: '.*', current: { text: 'All', value: '$__all' } }
  return { name: label, label, type: 'query', datasource: DATASOURCE, query, refresh: 2, sort: 1, ...all }
}

export interface GridPlace {
  readonly x: number
  readonly y: number
  readonly w: number
  readonly h: number
}

/** A line is as high as its highest panel. */
function placesOf(panels: readonly Panel[]): readonly GridPlace[] {
  const places: GridPlace[] = []
  let [x, y, lineHeight] = [0, 0, 0]
  for (const { width: w, kind } of panels) {
    const h = HEIGHTS[kind]
    if (x + w > COLUMNS) [x, y, lineHeight] = [0, y + lineHeight, 0]
    places.push({ x, y, w, h })
    x += w
    lineHeight = Math.max(lineHeight, h)
  }
  return places
}

function panelModel(panel: Panel, at: object): object {
  const { title, kind, queries, unit = 'short', help, by } = panel
  const isTable = kind === 'table' || kind === 'matrix'
  const targets = queries.map(({ expr, legend }, i) => ({
    refId: String.fromCharCode(65 + i),
    datasource: DATASOURCE,
    expr,
    ...(isTable || kind === 'stat' ? { instant: true, range: false } : { range: true, instant: false }),
    ...(isTable ? { format: 'table' } : {}),
    ...(legend === undefined ? {} : { legendFormat: legend }),
  }))
  return {
    ...at,
    title,
    type: kind === 'matrix' ? 'table' : kind,
    datasource: DATASOURCE,
    ...(help === undefined ? {} : { description: help }),
    fieldConfig: { defaults: { unit, custom: {} }, overrides: [] },
    options:
      kind === 'timeseries' ? { legend: { displayMode: 'table', placement: 'bottom', calcs: ['lastNotNull'] } } : {},
    targets,
    ...(by === undefined ? hidden(isTable) : matrixOf(by)),
  }
}

function matrixOf([rowField, columnField]: readonly [string, string]): object {
  return { transformations: [{ id: 'groupingToMatrix', options: { rowField, columnField, valueField: 'Value' } }] }
}

/** Hides the time of the query in tables, where it has no meaning. */
function hidden(isTable: boolean): object {
  if (!isTable) return {}
  return { transformations: [{ id: 'organize', options: { excludeByName: { Time: true, component: true } } }] }
}
