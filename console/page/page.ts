/**
 * The views of the page: what a person sees of the state. Texts go into the document as texts, never as HTML; each state
 * has a sign and a word, so that nothing is said by colour alone.
 */
import { type ComponentChildren, type VNode, h } from 'preact'
import { type Signal, signal } from '@preact/signals'
import type {
  About,
  ClusterCard,
  ConsoleState,
  DeniedRow,
  GatewayRow,
  LinkRow,
  ProblemRow,
  Section,
  ServiceRow,
  Times,
} from '../state/state.ts'

type Rows = Omit<ConsoleState, 'format'>

/** What the views read. Each section is a signal of its own, so that only what has changed is drawn again. */
export interface PageModel {
  readonly sections: { readonly [name in keyof Rows]: Signal<Rows[name] | undefined> }
  readonly filter: Signal<string>
  /** Milliseconds since 1970, by this machine's clock, once a second. */
  readonly now: Signal<number>
  /** Since when the server is silent. Undefined while it answers. */
  readonly lostSince: Signal<number | undefined>
  /** Read out by screen readers, at most every few seconds. */
  readonly announcement: Signal<string>
  /** The last command that was copied. */
  readonly copied: Signal<string>
  /** The sections of which all rows are shown. */
  readonly open: Signal<ReadonlySet<string>>
  /** Undefined where the browser gives a page no clipboard. */
  readonly copy: ((text: string) => void) | undefined
}

export function createModel(now: number, copy: PageModel['copy']): PageModel {
  return {
    sections: {
      about: signal<About | undefined>(undefined),
      times: signal<Times | undefined>(undefined),
      problems: signal<Section<ProblemRow> | undefined>(undefined),
      clusters: signal<Section<ClusterCard> | undefined>(undefined),
      gateways: signal<Section<GatewayRow> | undefined>(undefined),
      links: signal<Section<LinkRow> | undefined>(undefined),
      services: signal<Section<ServiceRow> | undefined>(undefined),
      denied: signal<Section<DeniedRow> | undefined>(undefined),
    },
    filter: signal(''),
    now: signal(now),
    lostSince: signal<number | undefined>(undefined),
    announcement: signal(''),
    copied: signal(''),
    open: signal<ReadonlySet<string>>(new Set()),
    copy,
  }
}

/** Takes what an event or a snapshot says. Sections of a later release are left out. */
export function takeSections(model: PageModel, said: Partial<ConsoleState>): void {
  const known = new Map<string, { value: unknown }>(Object.entries(model.sections))
  for (const [name, value] of Object.entries(said)) {
    const one = known.get(name)
    if (one !== undefined) one.value = value
  }
}

/** What a screen reader says about the whole. */
export function summaryOf({ health, counts }: About): string {
  const { problems, clustersReached, clusters, linksUp, links } = counts
  const count = `${problems} problem${problems === 1 ? '' : 's'}`
  return `${health}, ${count}, ${clustersReached} of ${clusters} clusters reached, ${linksUp} of ${links} links up`
}

interface Props {
  readonly model: PageModel
}

export function Page({ model }: Props): VNode {
  return h(
    'div',
    {},
    h('a', { class: 'skip', href: '#main' }, 'Skip to the problems'),
    h(Head, { model }),
    h(
      'main',
      { id: 'main', tabIndex: -1 },
      h(Problems, { model }),
      h(Clusters, { model }),
      h(Gateways, { model }),
      h(Links, { model }),
      h(Services, { model }),
      h(Denied, { model }),
    ),
  )
}

const TITLES = {
  problems: 'Problems',
  clusters: 'Clusters',
  gateways: 'Gateways',
  links: 'Links',
  services: 'Services',
  denied: 'Denied packets',
} as const
type Listed = keyof typeof TITLES

function Head({ model }: Props): VNode {
  const about = model.sections.about.value
  return h(
    'header',
    {},
    h('h1', {}, 'Sealane', about?.cluster === undefined ? '' : `: ${about.cluster}`),
    about === undefined ? h('p', {}, 'Waiting for facts.') : h(Summary, { model, about }),
    h(Lost, { model }),
    h(
      'nav',
      { 'aria-label': 'Sections' },
      h(
        'ul',
        {},
        Object.entries(TITLES).map(([id, title]) => h('li', {}, h('a', { href: `#${id}` }, title))),
      ),
    ),
    h(
      'label',
      {},
      'Filter ',
      h('input', {
        type: 'search',
        value: model.filter.value,
        spellcheck: false,
        onInput: (event: { readonly currentTarget: { readonly value: string } }) => {
          model.filter.value = event.currentTarget.value
        },
      }),
    ),
    h('p', { class: 'said', role: 'status', 'aria-live': 'polite' }, model.announcement.value),
    h('p', { class: 'said', role: 'status' }, model.copied.value === '' ? '' : `copied: ${model.copied.value}`),
  )
}

function Summary({ model, about }: Props & { readonly about: About }): VNode {
  const { target, clusterset, health, live, counts, command, failing } = about
  return h(
    'div',
    {},
    h(
      'ul',
      { class: 'facts' },
      h('li', {}, h(Badge, { state: health })),
      h('li', {}, `${counts.problems} problems`),
      h('li', {}, `${counts.clustersReached} of ${counts.clusters} clusters reached`),
      h('li', {}, `${counts.linksUp} of ${counts.links} links up`),
      h('li', {}, `${counts.services} services`),
    ),
    h('p', { class: 'soft' }, `${target}${clusterset === undefined ? '' : `, clusterset ${clusterset}`}`),
    h(AsOf, { model, at: 'facts', live }),
    h(Command, { model, command }),
    failing === undefined
      ? null
      : h(
          'p',
          { class: 'banner' },
          h(Badge, { state: 'down', word: 'no new facts' }),
          ' since ',
          h(Since, { model, at: failing.since }),
          `: ${failing.why}`,
        ),
  )
}

function Lost({ model }: Props): VNode | null {
  const since = model.lostSince.value
  if (since === undefined) return null
  return h(
    'p',
    { class: 'banner', role: 'alert' },
    h(Badge, { state: 'down', word: 'the console does not answer' }),
    ` since ${clockText(new Date(since).toISOString())}: what you see is from before. Start it again: sealane console`,
  )
}

function AsOf({ model, at, live }: Props & { readonly at: keyof Times; readonly live: boolean }): VNode | null {
  const time = model.sections.times.value?.[at]
  return time === undefined ? null : h(ReadAt, { model, time, live })
}

function ReadAt({ model, time, live }: Props & { readonly time: string; readonly live: boolean }): VNode {
  return h('p', { class: 'soft' }, live ? 'as of ' : 'from a file of ', h(Since, { model, at: time }))
}

/** A time, and how long ago it was. */
function Since({ model, at }: Props & { readonly at: string }): VNode {
  const ms = Date.parse(at)
  if (Number.isNaN(ms)) return h('span', {}, '-')
  const ago = agoText(Math.max(0, Math.floor((model.now.value - ms) / 1000)))
  return h('time', { dateTime: at, title: at }, `${clockText(at)}, ${ago}`)
}

function clockText(at: string): string {
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
  exported: ['●', 'good'],
  here: ['■', 'good'],
  own: ['■', 'good'],
  notice: ['ℹ', 'soft'],
  degraded: ['▲', 'warn'],
  connecting: ['▲', 'warn'],
  starting: ['▲', 'warn'],
  pending: ['▲', 'warn'],
  unknown: ['?', 'warn'],
  down: ['✕', 'bad'],
  silent: ['✕', 'bad'],
  failed: ['✕', 'bad'],
  'cut off': ['✕', 'bad'],
  'without backends': ['✕', 'bad'],
}

function Badge({ state, word = state }: { readonly state: string; readonly word?: string }): VNode {
  const [sign, colour] = SIGNS[state] ?? ['?', 'warn']
  return h('span', { class: `badge ${colour}` }, h('span', { 'aria-hidden': 'true' }, `${sign} `), word)
}

function Command({ model, command }: Props & { readonly command: string }): VNode {
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

interface ListProps<T> extends Props {
  readonly name: Listed
  readonly at?: keyof Times
  readonly none: string
  /** Draws rows, after the filter. */
  readonly draw: (rows: readonly T[]) => VNode
}

function List<T>({ model, name, at = 'facts', none, draw }: ListProps<T>): VNode {
  const section = model.sections[name].value as Section<T> | undefined
  const live = model.sections.about.value?.live ?? true
  const stale = section?.stale
  const filter = model.filter.value.trim().toLowerCase()
  const all = (section?.rows ?? []).filter((row) => filter === '' || matches(row, filter))
  const shown = model.open.value.has(name) ? all : all.slice(0, MOST_SHOWN)
  const total = section?.rows.length ?? 0
  const head = h(
    'div',
    { class: 'head' },
    h('h2', { id: `${name}-title` }, TITLES[name], section === undefined ? '' : ` (${countText(all.length, total)})`),
    section === undefined ? null : h(Command, { model, command: section.command }),
    stale === undefined
      ? h(AsOf, { model, at, live })
      : stale.at === undefined
        ? null
        : h(ReadAt, { model, time: stale.at, live }),
  )
  return h(
    'section',
    { id: name, 'aria-labelledby': `${name}-title` },
    head,
    stale === undefined
      ? null
      : h(
          'p',
          {},
          h(Badge, { state: 'unknown', word: stale.at === undefined ? 'incomplete' : 'not renewed' }),
          `: ${stale.why}`,
        ),
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

function countText(shown: number, all: number): string {
  return shown === all ? String(all) : `${shown} of ${all}`
}

/** By what a row says, whatever the field. */
export function matches(row: unknown, filter: string): boolean {
  if (typeof row === 'string') return row.toLowerCase().includes(filter)
  if (typeof row === 'number') return String(row).includes(filter)
  return typeof row === 'object' && row !== null && Object.values(row).some((value) => matches(value, filter))
}

function Problems({ model }: Props): VNode {
  const draw = (rows: readonly ProblemRow[]): VNode =>
    h(
      'ul',
      { class: 'list' },
      rows.map((row) => h(Problem, { model, row, key: `${row.reason} ${row.subject}` })),
    )
  return h(List<ProblemRow>, { model, name: 'problems', none: 'No problems.', draw })
}

function Problem({ model, row }: Props & { readonly row: ProblemRow }): VNode {
  const { severity, reason, subject, seen, source, since, mend, consequences, commands } = row
  return h(
    'li',
    { class: 'card' },
    h('h3', {}, h(Badge, { state: severity }), ` ${reason}: ${subject}`),
    since === undefined ? null : h('p', { class: 'soft' }, 'since ', h(Since, { model, at: since })),
    h('p', {}, `Seen: ${seen} `, h('span', { class: 'soft' }, `(${source})`)),
    consequences.length === 0 ? null : h('p', {}, `Hence: ${consequences.join(', ')}`),
    h('p', {}, `To do: ${mend}`),
    h(
      'p',
      {},
      commands.map((command) => h(Command, { model, command, key: command })),
    ),
  )
}

function Clusters({ model }: Props): VNode {
  const draw = (rows: readonly ClusterCard[]): VNode =>
    h(
      'ul',
      { class: 'cards' },
      rows.map((row) => h(ClusterView, { model, row, key: row.cluster })),
    )
  return h(List<ClusterCard>, { model, name: 'clusters', none: 'No other cluster is known.', draw })
}

function ClusterView({ model, row }: Props & { readonly row: ClusterCard }): VNode {
  const { cluster, state, since, contact, linksUp, links, podCIDRs, globalCIDRs, labels } = row
  const ranges = [...podCIDRs, ...globalCIDRs.map((one) => `${one} (global)`)]
  return h(
    'li',
    { class: 'card' },
    h('h3', {}, cluster),
    h('p', {}, h(Badge, { state })),
    since === undefined ? null : h('p', { class: 'soft' }, 'since ', h(Since, { model, at: since })),
    h('p', {}, `links ${linksUp} of ${links} up${qualityText(row)}`),
    h('p', {}, 'broker: ', h(Badge, { state: contact })),
    ranges.length === 0 ? null : h('p', { class: 'soft' }, `pods ${ranges.join(', ')}`),
    labels.length === 0 ? null : h('p', { class: 'soft' }, labels.join(', ')),
  )
}

function qualityText({ rttMs, loss, mtu }: Pick<ClusterCard, 'rttMs' | 'loss' | 'mtu'>): string {
  const parts = [
    rttMs === undefined ? '' : `, RTT ${msText(rttMs)}`,
    loss === undefined ? '' : `, loss ${percentText(loss)}`,
    mtu === undefined ? '' : `, MTU ${mtu}`,
  ]
  return parts.join('')
}

function msText(ms: number | undefined): string {
  return ms === undefined ? '-' : `${ms.toFixed(1)} ms`
}

function percentText(share: number | undefined): string {
  return share === undefined ? '-' : `${Math.round(share * 100)} %`
}

interface Column<T> {
  readonly title: string
  readonly cell: (row: T) => ComponentChildren
  readonly class?: 'number' | 'wide'
}

interface TableProps<T> {
  readonly caption: string
  readonly columns: readonly Column<T>[]
  readonly rows: readonly T[]
  readonly keyOf: (row: T) => string
}

/** A narrow screen scrolls it: by keyboard too, therefore it takes the focus. */
function Table<T>({ caption, columns, rows, keyOf }: TableProps<T>): VNode {
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

function Gateways({ model }: Props): VNode {
  const columns: readonly Column<GatewayRow>[] = [
    { title: 'Gateway', cell: (row) => row.node },
    { title: 'State', cell: ({ state }) => h(Badge, { state }) },
    { title: 'Since', cell: ({ since }) => (since === undefined ? '-' : h(Since, { model, at: since })) },
    { title: 'Lane', cell: (row) => row.lane ?? '-', class: 'number' },
    { title: 'Links up', cell: (row) => `${row.linksUp} of ${row.links}`, class: 'number' },
    { title: 'Version', cell: (row) => row.version ?? '-' },
  ]
  const draw = (rows: readonly GatewayRow[]): VNode =>
    h(Table<GatewayRow>, { caption: 'Gateways of this cluster', columns, rows, keyOf: ({ node }) => node })
  return h(List<GatewayRow>, { model, name: 'gateways', none: 'No node is a gateway.', draw })
}

function Links({ model }: Props): VNode {
  const columns: readonly Column<LinkRow>[] = [
    { title: 'From', cell: (row) => `${row.node} lane ${row.lane}` },
    { title: 'To', cell: (row) => `${row.cluster} lane ${row.remoteLane}` },
    { title: 'State', cell: ({ state }) => h(Badge, { state }) },
    { title: 'Since', cell: ({ since }) => (since === undefined ? 'before' : h(Since, { model, at: since })) },
    { title: 'RTT', cell: ({ rttMs }) => msText(rttMs), class: 'number' },
    { title: 'Loss', cell: ({ loss }) => percentText(loss), class: 'number' },
    { title: 'MTU', cell: (row) => row.mtu ?? '-', class: 'number' },
    { title: 'Cable', cell: (row) => row.cable ?? '-' },
    { title: 'Way', cell: (row) => row.way ?? '-' },
    { title: 'Address', cell: (row) => row.address ?? '-' },
    { title: 'Message', cell: (row) => row.message, class: 'wide' },
  ]
  const keyOf = (row: LinkRow): string => `${row.node} ${row.lane} ${row.cluster} ${row.remoteLane}`
  const draw = (rows: readonly LinkRow[]): VNode =>
    h(Table<LinkRow>, { caption: 'Links to other clusters', columns, rows, keyOf })
  return h(List<LinkRow>, { model, name: 'links', none: 'There are no links.', draw })
}

function Services({ model }: Props): VNode {
  const columns: readonly Column<ServiceRow>[] = [
    { title: 'Service', cell: (row) => `${row.namespace}/${row.name}` },
    { title: 'State', cell: ({ state }) => h(Badge, { state, word: state === 'own' ? 'exported only' : state }) },
    { title: 'Exporters', cell: (row) => listText(row.exporters, row.moreExporters) },
    {
      title: 'Own export',
      cell: ({ exported }) => (exported === undefined ? '-' : h(Badge, { state: exported })),
    },
    { title: 'Importers', cell: (row) => listText(row.importers, row.moreImporters) },
    { title: 'Shares', cell: (row) => h(Shares, { row }), class: 'wide' },
    { title: 'Policy', cell: (row) => row.policy ?? '-' },
    { title: 'Type', cell: (row) => row.type ?? '-' },
    { title: 'IP', cell: (row) => listText(row.ips, 0) },
  ]
  const draw = (rows: readonly ServiceRow[]): VNode =>
    h(Table<ServiceRow>, { caption: 'Services', columns, rows, keyOf: (row) => `${row.namespace}/${row.name}` })
  return h(List<ServiceRow>, { model, name: 'services', none: 'No service is exported or imported.', draw })
}

function listText(names: readonly string[], more: number): string {
  if (names.length === 0) return '-'
  return `${names.join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

function Shares({ row: { shares, moreShares } }: { readonly row: ServiceRow }): VNode | string {
  if (shares.length === 0) return '-'
  const texts = shares.map(({ cluster, share, ready, total, tier, weight, reason }) => {
    const by = [
      `${ready} of ${total} ready`,
      ...(tier === undefined ? [] : [`tier ${tier}`]),
      ...(weight === undefined ? [] : [`weight ${weight}`]),
      reason,
    ]
    return h('li', { key: cluster }, `${cluster} ${share / 100} % (${by.join(', ')})`)
  })
  return h('ul', { class: 'list' }, texts, moreShares > 0 ? h('li', {}, `and ${moreShares} more`) : null)
}

function Denied({ model }: Props): VNode {
  const columns: readonly Column<DeniedRow>[] = [
    { title: 'At', cell: ({ at }) => h(Since, { model, at }) },
    { title: 'From', cell: (row) => row.from },
    { title: 'To', cell: (row) => row.to },
    { title: 'Port', cell: ({ protocol, port }) => (port === undefined ? protocol : `${protocol} ${port}`) },
    { title: 'Reason', cell: (row) => row.reason },
    { title: 'Node', cell: (row) => row.node ?? '-' },
  ]
  const keyOf = (row: DeniedRow): string => `${row.at} ${row.from} ${row.to} ${row.port ?? ''}`
  const draw = (rows: readonly DeniedRow[]): VNode =>
    h(Table<DeniedRow>, { caption: 'Samples of refused packets, the latest first', columns, rows, keyOf })
  return h(List<DeniedRow>, { model, name: 'denied', at: 'denied', none: 'No packet was refused.', draw })
}
