/** The pieces that the sections of the page are made of: signs with words, times, commands to copy, tables, lists. */
import { type ComponentChildren, type VNode, h } from 'preact'
import type { OfContext, Section, Times, Traffic } from '../state/state.ts'
import { type PageModel, matches } from './model.ts'

/** What every view takes. */
export interface Props {
  readonly model: PageModel
}

/** The sections, in the order of the page. */
export const TITLES = {
  problems: 'Problems',
  clusters: 'Clusters',
  map: 'Map',
  gateways: 'Gateways',
  links: 'Links',
  services: 'Services',
  path: 'Path',
  flows: 'Flows',
  denied: 'Denied packets',
  charts: 'Charts',
  events: 'Events',
} as const
export type SectionId = keyof typeof TITLES
/** What a broker knows; the rest only members know. */
const AT_BROKER: readonly SectionId[] = ['problems', 'clusters', 'gateways', 'services', 'events']

/** The sections that the page has. */
export function sectionsOf({ sections: { about } }: PageModel): readonly SectionId[] {
  const all = Object.keys(TITLES) as SectionId[]
  return about.value?.broker === undefined ? all : all.filter((id) => AT_BROKER.includes(id))
}
/** The sections of the state that have rows. */
export type RowsName = Exclude<keyof PageModel['sections'], 'about' | 'times'>

export function AsOf({ model, at, live }: Props & { readonly at: keyof Times; readonly live: boolean }): VNode | null {
  const time = model.sections.times.value?.[at]
  return time === undefined ? null : h(ReadAt, { model, time, live })
}

export function ReadAt({ model, time, live }: Props & { readonly time: string; readonly live: boolean }): VNode {
  return h('p', { class: 'soft' }, live ? 'as of ' : 'from a file of ', h(Since, { model, at: time }))
}

/** A time, and how long ago it was. */
export function Since({ model, at }: Props & { readonly at: string }): VNode {
  const ms = Date.parse(at)
  if (Number.isNaN(ms)) return h('span', {}, '-')
  const ago = agoText(Math.max(0, Math.floor((model.now.value - ms) / 1000)))
  return h('time', { dateTime: at, title: at }, `${clockText(at)}, ${ago}`)
}

export function clockText(at: string): string {
  return `${at.slice(0, 10)} ${at.slice(11, 19)} UTC`
}

export function agoText(seconds: number): string {
  if (seconds < 120) return `${seconds} s ago`
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ago`
  return seconds < 172_800 ? `${Math.floor(seconds / 3600)} h ago` : `${Math.floor(seconds / 86_400)} days ago`
}

const SIGNS: Readonly<Record<string, readonly [sign: string, colour: string]>> = {
  healthy: ['●', 'good'],
  up: ['●', 'good'],
  reached: ['●', 'good'],
  usable: ['●', 'good'],
  reporting: ['●', 'good'],
  heard: ['●', 'good'],
  'in contact': ['●', 'good'],
  published: ['■', 'good'],
  exported: ['●', 'good'],
  active: ['●', 'good'],
  ends: ['●', 'good'],
  appears: ['●', 'good'],
  standby: ['■', 'good'],
  passes: ['●', 'good'],
  answered: ['●', 'good'],
  REACHABLE: ['●', 'good'],
  here: ['■', 'good'],
  own: ['■', 'good'],
  notice: ['ℹ', 'soft'],
  more: ['ℹ', 'soft'],
  drained: ['▲', 'warn'],
  degraded: ['▲', 'warn'],
  connecting: ['▲', 'warn'],
  starting: ['▲', 'warn'],
  pending: ['▲', 'warn'],
  gone: ['▲', 'warn'],
  disappears: ['▲', 'warn'],
  partly: ['▲', 'warn'],
  unanswered: ['▲', 'warn'],
  'timed-out': ['▲', 'warn'],
  AMBIGUOUS: ['▲', 'warn'],
  follows: ['↳', 'warn'],
  unknown: ['?', 'warn'],
  UNDETERMINED: ['?', 'warn'],
  down: ['✕', 'bad'],
  begins: ['✕', 'bad'],
  fails: ['✕', 'bad'],
  refused: ['✕', 'bad'],
  denied: ['✕', 'bad'],
  UNREACHABLE: ['✕', 'bad'],
  silent: ['✕', 'bad'],
  failed: ['✕', 'bad'],
  'cut off': ['✕', 'bad'],
  'without backends': ['✕', 'bad'],
}

export function Badge({ state, word = state }: { readonly state: string; readonly word?: string }): VNode {
  const [sign, colour] = SIGNS[state] ?? ['?', 'warn']
  return h('span', { class: `badge ${colour}` }, h('span', { 'aria-hidden': 'true' }, `${sign} `), word)
}

export function Command({ model, command }: Props & { readonly command: string }): VNode {
  const { copy } = model
  return h(
    'span',
    { class: 'command' },
    h('code', {}, command),
    copy === undefined
      ? null
      : h(
          'button',
          {
            type: 'button',
            'aria-label': `Copy: ${command}`,
            onClick: () => {
              copy(command)
            },
          },
          model.copied.value === command ? 'Copied' : 'Copy',
        ),
  )
}

/** The most rows that are drawn before a person asks for all. */
const MOST_SHOWN = 200

interface FrameProps extends Props {
  readonly name: SectionId
  /** Stands behind the title. */
  readonly count?: string
  readonly command?: string | undefined
  /** The same of further contexts. */
  readonly commands?: readonly string[] | undefined
  /** How old the facts are. */
  readonly age?: ComponentChildren
}

/** A section with its title, the command that shows the same, and the age of its facts. */
export function Frame({ model, name, count, command, commands = [], age, children }: FrameProps & Children): VNode {
  return h(
    'section',
    { id: name, 'aria-labelledby': `${name}-title` },
    h(
      'div',
      { class: 'head' },
      h('h2', { id: `${name}-title` }, TITLES[name], count === undefined ? '' : ` (${count})`),
      command === undefined ? null : h(Command, { model, command }),
      commands.map((one) => h(Command, { model, command: one, key: one })),
      age ?? null,
    ),
    children ?? null,
  )
}

interface Children {
  readonly children?: ComponentChildren
}

/** The rows that match the filter, and how many there are. */
export interface Filtered<T> {
  readonly section: Section<T> | undefined
  readonly rows: readonly T[]
  readonly count: string | undefined
}

export function filtered<T>(model: PageModel, name: RowsName): Filtered<T> {
  const section = model.sections[name].value as Section<T> | undefined
  const filter = model.filter.value.trim().toLowerCase()
  const rows = (section?.rows ?? []).filter((row) => filter === '' || matches(row, filter))
  return { section, rows, count: section === undefined ? undefined : countText(rows.length, section.rows.length) }
}

/** Says why rows are old, or were never read whole. */
export function Incomplete({ stale }: { readonly stale: Section<unknown>['stale'] }): VNode | null {
  if (stale === undefined) return null
  const word = stale.at === undefined ? 'incomplete' : 'not renewed'
  return h('p', {}, h(Badge, { state: 'unknown', word }), `: ${stale.why}`)
}

interface RowsProps<T> extends Props {
  readonly name: RowsName
  readonly found: Filtered<T>
  /** What stands in place of rows where there are none. */
  readonly none: string
  /** Draws rows, after the filter. */
  readonly draw: (rows: readonly T[]) => VNode
}

/** The rows of a section of the state, with what is missing of them. */
export function Rows<T>({ model, name, found: { section, rows: all }, none, draw }: RowsProps<T>): VNode {
  const stale = section?.stale
  const shown = model.open.value.has(name) ? all : all.slice(0, MOST_SHOWN)
  const total = section?.rows.length ?? 0
  return h(
    'div',
    {},
    h(Incomplete, { stale }),
    section?.note === undefined ? null : h('p', { class: 'soft' }, section.note),
    section === undefined
      ? h('p', {}, 'Waiting for facts.')
      : shown.length > 0
        ? draw(shown)
        : section.note === undefined && stale === undefined
          ? h('p', {}, total > 0 ? 'Nothing matches the filter.' : none)
          : null,
    all.length > shown.length
      ? h(
          'button',
          {
            type: 'button',
            onClick: () => {
              model.open.value = new Set([...model.open.value, name])
            },
          },
          `Show all ${all.length}`,
        )
      : null,
    section !== undefined && section.more > 0
      ? h('p', { class: 'soft' }, `and ${section.more} more that the console leaves out; see: ${section.command}`)
      : null,
  )
}

interface ListProps<T> extends Omit<RowsProps<T>, 'found'> {
  readonly name: RowsName & SectionId
  readonly at?: keyof Times
  /** Stands below the rows. */
  readonly after?: VNode | null
}

/** A section of the page that is one section of the state. */
export function List<T>({ model, name, at = 'facts', none, draw, after = null }: ListProps<T>): VNode {
  const found = filtered<T>(model, name)
  const live = model.sections.about.value?.live ?? true
  const stale = found.section?.stale
  const age =
    stale === undefined
      ? h(AsOf, { model, at, live })
      : stale.at === undefined
        ? null
        : h(ReadAt, { model, time: stale.at, live })
  const count = found.count === undefined ? {} : { count: found.count }
  return h(
    Frame,
    { model, name, ...count, command: found.section?.command, commands: found.section?.commands, age },
    h(Rows<T>, { model, name, found, none, draw }),
    after,
  )
}

function countText(shown: number, all: number): string {
  return shown === all ? String(all) : `${shown} of ${all}`
}

export function msText(ms: number | undefined): string {
  return ms === undefined ? '-' : `${ms.toFixed(1)} ms`
}

export function percentText(share: number | undefined): string {
  return share === undefined ? '-' : `${Math.round(share * 100)} %`
}

export interface Column<T> {
  readonly title: string
  readonly cell: (row: T) => ComponentChildren
  readonly class?: 'number' | 'wide'
}

/** Bytes a second through links, in and out. */
export function trafficText(traffic: Traffic | undefined): string {
  if (traffic === undefined) return '-'
  return `${bytesText(traffic.receivedPerSecond)} in, ${bytesText(traffic.sentPerSecond)} out`
}

export function bytesText(perSecond: number): string {
  if (perSecond < 1000) return `${Math.round(perSecond)} B/s`
  return perSecond < 1_000_000 ? `${(perSecond / 1000).toFixed(1)} kB/s` : `${(perSecond / 1_000_000).toFixed(1)} MB/s`
}

interface TableProps<T> {
  readonly caption: string
  readonly columns: readonly Column<T>[]
  readonly rows: readonly T[]
  readonly keyOf: (row: T) => string
}

/** A narrow screen scrolls it: by keyboard too, therefore it takes the focus. */
export function Table<T>({ caption, columns, rows, keyOf }: TableProps<T>): VNode {
  const head = columns.map(({ title, class: kind = '' }) => h('th', { scope: 'col', class: kind }, title))
  return h(
    'div',
    { class: 'scroll', role: 'region', 'aria-label': caption, tabIndex: 0 },
    h(
      'table',
      {},
      h('caption', { class: 'said' }, caption),
      h('thead', {}, h('tr', {}, head)),
      h(
        'tbody',
        {},
        rows.map((row) =>
          h(
            'tr',
            { key: keyOf(row) },
            columns.map(({ cell, class: kind = '' }, i) =>
              i === 0 ? h('th', { scope: 'row', class: kind }, cell(row)) : h('td', { class: kind }, cell(row)),
            ),
          ),
        ),
      ),
    ),
  )
}
export function listText(names: readonly string[], more: number): string {
  if (names.length === 0) return '-'
  return `${names.join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

/** The rows of a section: on a page about several contexts each names its own, behind the first column. */
export function RowTable<T extends OfContext>({ model, columns, keyOf, ...table }: TableProps<T> & Props): VNode {
  if (model.sections.about.value?.contexts === undefined) return h(Table<T>, { columns, keyOf, ...table })
  const own: Column<T> = { title: 'Context', cell: ({ context }) => context ?? '-' }
  return h(Table<T>, {
    ...table,
    columns: [...columns.slice(0, 1), own, ...columns.slice(1)],
    keyOf: (row) => `${row.context ?? ''} ${keyOf(row)}`,
  })
}
