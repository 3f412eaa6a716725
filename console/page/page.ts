/**
 * The views of the page: what a person sees of the state. Texts go into the document as texts, never as HTML; each state
 * has a sign and a word, so that nothing is said by colour alone.
 */
import { type VNode, h } from 'preact'
import type {
  About,
  AboutBroker,
  ClusterCard,
  ContextRow,
  DeniedRow,
  EventRow,
  GatewayRow,
  LinkRow,
  OfContext,
  ProblemRow,
  ServiceRow,
} from '../state/state.ts'
import {
  AsOf,
  Badge,
  type Column,
  Command,
  List,
  type Props,
  RowTable,
  Since,
  type SectionId,
  TITLES,
  clockText,
  listText,
  msText,
  percentText,
  sectionsOf,
  trafficText,
} from './elements.ts'
import { Charts } from './charts.ts'
import { Flows, callsNote, rateText } from './flows.ts'
import { ClusterMap } from './map.ts'
import { reachedText, togglePause } from './model.ts'
import { PathSection } from './path.ts'

export { agoText } from './elements.ts'
export { type PageModel, createModel, matches, summaryOf, takeSections, togglePause } from './model.ts'

const VIEWS: { readonly [id in SectionId]: (props: Props) => VNode } = {
  problems: Problems,
  clusters: Clusters,
  map: ClusterMap,
  gateways: Gateways,
  links: Links,
  services: Services,
  path: PathSection,
  flows: Flows,
  denied: Denied,
  charts: Charts,
  events: Events,
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
      sectionsOf(model).map((id) => h(VIEWS[id], { model, key: id })),
    ),
  )
}

function Head({ model }: Props): VNode {
  const about = model.sections.about.value
  return h(
    'header',
    {},
    h('h1', {}, 'Sealane', titleOf(about)),
    about === undefined ? h('p', {}, 'Waiting for facts.') : h(Summary, { model, about }),
    h(Lost, { model }),
    h(
      'nav',
      { 'aria-label': 'Sections' },
      h(
        'ul',
        {},
        sectionsOf(model).map((id) => h('li', {}, h('a', { href: `#${id}` }, TITLES[id]))),
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
    ' ',
    h(
      'button',
      {
        ...{ type: 'button', 'aria-pressed': String(model.paused.value) },
        onClick: () => {
          togglePause(model)
        },
      },
      'Pause',
    ),
    model.paused.value ? h('p', { class: 'banner' }, 'Paused: nothing on this page changes.') : null,
    h('p', { class: 'said', role: 'status', 'aria-live': 'polite' }, model.announcement.value),
    h('p', { class: 'said', role: 'status' }, model.copied.value === '' ? '' : `copied: ${model.copied.value}`),
  )
}

function titleOf(about: About | undefined): string {
  if (about?.broker !== undefined) return ': broker'
  if (about?.contexts !== undefined) return `: ${about.contexts.length} contexts`
  return about?.cluster === undefined ? '' : `: ${about.cluster}`
}

function Summary({ model, about }: Props & { readonly about: About }): VNode {
  const { target, clusterset, health, live, counts, command, failing, contexts, broker } = about
  return h(
    'div',
    {},
    h(
      'ul',
      { class: 'facts' },
      h('li', {}, h(Badge, { state: health })),
      h('li', {}, `${counts.problems} problem${counts.problems === 1 ? '' : 's'}`),
      h('li', {}, reachedText(about)),
      h('li', {}, `${counts.linksUp} of ${counts.links} links up`),
      h('li', {}, `${counts.services} service${counts.services === 1 ? '' : 's'}`),
    ),
    h('p', { class: 'soft' }, `${target}${clusterset === undefined ? '' : `, clusterset ${clusterset}`}`),
    h(AsOf, { model, at: 'facts', live }),
    contexts === undefined
      ? h(Command, { model, command })
      : h(
          'ul',
          { class: 'list', 'aria-label': 'Contexts' },
          contexts.map((row) => h(Context, { model, row, key: row.context })),
        ),
    broker === undefined ? null : h(OfBroker, { model, broker }),
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

/** What counts for all members, and what this page cannot say. */
function OfBroker({ model, broker }: Props & { readonly broker: AboutBroker }): VNode {
  const { accessDefault, topology, topologyChanges, drained, waiting, commands } = broker
  const changes = topologyChanges === 0 ? 'never set' : `change ${topologyChanges}`
  return h(
    'div',
    {},
    h(
      'ul',
      { class: 'facts', 'aria-label': 'For all members' },
      h('li', {}, `services without a policy: ${accessDefault}`),
      h('li', {}, `topology ${topology} (${changes})`),
      h('li', {}, `${drained} drained`),
      h('li', {}, `${waiting} waiting for approval`),
    ),
    commands.map((command) => h(Command, { model, command, key: command })),
    h('p', { class: 'soft' }, 'Links, paths and calls: only members know them. Run sealane console there.'),
  )
}

/** One of several contexts. While it is silent, the page shows what it said last. */
function Context({ model, row }: Props & { readonly row: ContextRow }): VNode {
  const { context, cluster, health, problems = 0, facts, command, failing } = row
  const name = `${context}${cluster === undefined || cluster === context ? '' : ` (cluster ${cluster})`}: `
  const count = `, ${problems} problem${problems === 1 ? '' : 's'}`
  return h(
    'li',
    {},
    name,
    failing === undefined
      ? h(Badge, { state: health ?? 'unknown', word: health ?? 'not read yet' })
      : h(Badge, { state: 'silent', word: 'does not answer' }),
    failing === undefined ? null : [' since ', h(Since, { model, at: failing.since }), `: ${failing.why}`],
    failing === undefined && health !== undefined ? count : null,
    facts === undefined
      ? null
      : [failing === undefined ? ', as of ' : '; shown as of ', h(Since, { model, at: facts })],
    ' ',
    h(Command, { model, command }),
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

function Problems({ model }: Props): VNode {
  const draw = (rows: readonly ProblemRow[]): VNode =>
    h(
      'ul',
      { class: 'list' },
      rows.map((row) => h(Problem, { model, row, key: `${row.context ?? ''} ${row.reason} ${row.subject}` })),
    )
  return h(List<ProblemRow>, { model, name: 'problems', none: 'No problems.', draw })
}

function Problem({ model, row }: Props & { readonly row: ProblemRow }): VNode {
  const { severity, reason, subject, seen, source, since, mend, consequences, commands } = row
  return h(
    'li',
    { class: 'card' },
    h('h3', {}, h(Badge, { state: severity }), ` ${reason}: ${subject}`),
    h(OfContextText, { row }),
    since === undefined ? null : h('p', { class: 'soft' }, 'since ', h(Since, { model, at: since })),
    h('p', {}, `Seen: ${seen} `, h('span', { class: 'soft' }, `(${source})`)),
    consequences.length === 0 ? null : h('p', {}, `Hence: ${consequences.join(', ')}`),
    h('p', {}, 'To do: ', codesIn(mend)),
    h(
      'p',
      {},
      commands.map((command) => h(Command, { model, command, key: command })),
    ),
  )
}

/** Nothing on a page about one cluster. */
function OfContextText({ row: { context } }: { readonly row: OfContext }): VNode | null {
  return context === undefined ? null : h('p', { class: 'soft' }, `context ${context}`)
}

/** The table of reasons writes commands between backticks. */
function codesIn(text: string): readonly (VNode | string)[] {
  const parts = text.split('`')
  return parts.map((part, i) => (i % 2 === 1 && i < parts.length - 1 ? h('code', { key: String(i) }, part) : part))
}

function Clusters({ model }: Props): VNode {
  const draw = (rows: readonly ClusterCard[]): VNode =>
    h(
      'ul',
      { class: 'cards' },
      rows.map((row) => h(ClusterView, { model, row, key: `${row.context ?? ''} ${row.cluster}` })),
    )
  const about = model.sections.about.value
  const after = about?.notLinked === undefined ? null : h(NotLinked, { not: about.notLinked })
  return h(List<ClusterCard>, { model, name: 'clusters', none: 'No other cluster is known.', draw, after })
}

/** That a cluster has no card is no fault then. */
function NotLinked({ not }: { readonly not: NonNullable<About['notLinked']> }): VNode {
  return h('p', {}, `Not linked with this cluster (${not.reason}): ${listText(not.clusters, not.more)}.`)
}

function ClusterView({ model, row }: Props & { readonly row: ClusterCard }): VNode {
  const { cluster, state, since, contact, linksUp, links, podCIDRs, globalCIDRs, labels, lastSeen, drained } = row
  const ranges = [...podCIDRs, ...globalCIDRs.map((one) => `${one} (global)`)]
  return h(
    'li',
    { class: 'card' },
    h('h3', {}, cluster),
    h(OfContextText, { row }),
    h('p', {}, h(Badge, { state }), drained === true ? [' ', h(Badge, { state: 'drained' })] : null),
    since === undefined ? null : h('p', { class: 'soft' }, 'since ', h(Since, { model, at: since })),
    lastSeen === undefined ? null : h(Reported, { model, row, lastSeen }),
    h('p', {}, `links ${linksUp} of ${links} up${qualityText(row)}`),
    row.traffic === undefined ? null : h('p', {}, `data ${trafficText(row.traffic)}`),
    lastSeen === undefined ? h('p', {}, 'broker: ', h(Badge, { state: contact })) : null,
    ranges.length === 0 ? null : h('p', { class: 'soft' }, `pods ${ranges.join(', ')}`),
    labels.length === 0 ? null : h('p', { class: 'soft' }, labels.join(', ')),
  )
}

/** A member as the broker knows it. */
function Reported({ model, row, lastSeen }: Props & { readonly row: ClusterCard; readonly lastSeen: string }): VNode {
  const { versions, exports } = row
  const failed = exports === undefined || exports.failed === 0 ? '' : ` (${exports.failed} failed)`
  return h(
    'div',
    {},
    h('p', { class: 'soft' }, 'last heard ', h(Since, { model, at: lastSeen })),
    versions === undefined || exports === undefined
      ? h('p', {}, 'it has reported nothing')
      : h('p', {}, `version ${listText(versions, 0)}, ${exports.count} exports${failed}`),
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

function Gateways({ model }: Props): VNode {
  if (model.sections.about.value?.broker !== undefined) return h(PublishedGateways, { model })
  const columns: readonly Column<GatewayRow>[] = [
    { title: 'Gateway', cell: (row) => row.node },
    { title: 'State', cell: ({ state }) => h(Badge, { state }) },
    { title: 'Since', cell: ({ since }) => (since === undefined ? '-' : h(Since, { model, at: since })) },
    { title: 'Lane', cell: (row) => row.lane ?? '-', class: 'number' },
    { title: 'Links up', cell: (row) => `${row.linksUp} of ${row.links}`, class: 'number' },
    { title: 'Version', cell: (row) => row.version ?? '-' },
  ]
  const draw = (rows: readonly GatewayRow[]): VNode =>
    h(RowTable<GatewayRow>, { model, caption: 'Gateways of this cluster', columns, rows, keyOf: ({ node }) => node })
  return h(List<GatewayRow>, { model, name: 'gateways', none: 'No node is a gateway.', draw })
}

function PublishedGateways({ model }: Props): VNode {
  const columns: readonly Column<GatewayRow>[] = [
    { title: 'Gateway', cell: ({ cluster = '', node }) => `${cluster} ${node}` },
    { title: 'State', cell: ({ state }) => h(Badge, { state }) },
    { title: 'Lane', cell: (row) => row.lane ?? '-', class: 'number' },
    { title: 'Addresses', cell: ({ addresses = [] }) => listText(addresses, 0), class: 'wide' },
  ]
  const keyOf = ({ cluster = '', node, lane = 0 }: GatewayRow): string => `${cluster} ${node} ${lane}`
  const draw = (rows: readonly GatewayRow[]): VNode =>
    h(RowTable<GatewayRow>, { model, caption: 'Gateways that members publish', columns, rows, keyOf })
  return h(List<GatewayRow>, { model, name: 'gateways', none: 'No member publishes a gateway.', draw })
}

function Links({ model }: Props): VNode {
  const columns: readonly Column<LinkRow>[] = [
    { title: 'From', cell: (row) => `${row.node} lane ${row.lane}` },
    { title: 'To', cell: (row) => `${row.cluster} lane ${row.remoteLane}` },
    { title: 'State', cell: ({ state }) => h(Badge, { state }) },
    { title: 'Since', cell: ({ since }) => (since === undefined ? 'before' : h(Since, { model, at: since })) },
    { title: 'RTT', cell: ({ rttMs }) => msText(rttMs), class: 'number' },
    { title: 'Loss', cell: ({ loss }) => percentText(loss), class: 'number' },
    { title: 'Data', cell: ({ traffic }) => trafficText(traffic), class: 'number' },
    { title: 'MTU', cell: (row) => row.mtu ?? '-', class: 'number' },
    { title: 'Cable', cell: (row) => row.cable ?? '-' },
    { title: 'Way', cell: ({ way, relay }) => (relay === undefined ? (way ?? '-') : `relay ${relay}`) },
    { title: 'Address', cell: (row) => row.address ?? '-' },
    { title: 'Message', cell: (row) => row.message, class: 'wide' },
  ]
  const keyOf = (row: LinkRow): string => `${row.node} ${row.lane} ${row.cluster} ${row.remoteLane}`
  const draw = (rows: readonly LinkRow[]): VNode =>
    h(RowTable<LinkRow>, { model, caption: 'Links to other clusters', columns, rows, keyOf })
  return h(List<LinkRow>, { model, name: 'links', none: 'There are no links.', draw })
}

function Services({ model }: Props): VNode {
  if (model.sections.about.value?.broker !== undefined) return h(PublishedServices, { model })
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
    { title: 'Calls a second', cell: ({ calls }) => rateText(calls?.perSecond), class: 'number' },
    { title: 'Errors', cell: ({ calls }) => calls?.errors ?? '-', class: 'number' },
    { title: 'Policy', cell: (row) => row.policy ?? '-' },
    { title: 'Type', cell: (row) => row.type ?? '-' },
    { title: 'IP', cell: (row) => listText(row.ips, 0) },
  ]
  const draw = (rows: readonly ServiceRow[]): VNode =>
    h(RowTable<ServiceRow>, {
      model,
      caption: 'Services',
      columns,
      rows,
      keyOf: (row) => `${row.namespace}/${row.name}`,
    })
  const note = callsNote(model)
  const after = note === undefined ? null : h('p', { class: 'soft' }, note)
  return h(List<ServiceRow>, { model, name: 'services', none: 'No service is exported or imported.', draw, after })
}

function PublishedServices({ model }: Props): VNode {
  const columns: readonly Column<ServiceRow>[] = [
    { title: 'Service', cell: (row) => `${row.namespace}/${row.name}` },
    { title: 'State', cell: ({ state }) => h(Badge, { state }) },
    { title: 'Exporters', cell: (row) => listText(row.exporters, row.moreExporters) },
    { title: 'Drained at', cell: ({ drainedAt = [] }) => listText(drainedAt, 0) },
    { title: 'Importers', cell: (row) => listText(row.importers, row.moreImporters) },
    { title: 'Type', cell: (row) => row.type ?? '-' },
    { title: 'IP', cell: (row) => listText(row.ips, 0) },
  ]
  const keyOf = (row: ServiceRow): string => `${row.namespace}/${row.name}`
  const draw = (rows: readonly ServiceRow[]): VNode =>
    h(RowTable<ServiceRow>, { model, caption: 'Services that members export', columns, rows, keyOf })
  return h(List<ServiceRow>, { model, name: 'services', none: 'No member exports a service.', draw })
}

function Shares({ row: { shares, moreShares } }: { readonly row: ServiceRow }): VNode | string {
  if (shares.length === 0) return '-'
  const texts = shares.map(({ cluster, ports, share, ready, total, tier, weight, reason }) => {
    const by = [
      ...(ports === undefined ? [] : [`port ${ports}`]),
      `${ready} of ${total} ready`,
      ...(tier === undefined ? [] : [`tier ${tier}`]),
      ...(weight === undefined ? [] : [`weight ${weight}`]),
      reason,
    ]
    return h('li', { key: `${cluster} ${ports ?? ''}` }, `${cluster} ${share / 100} % (${by.join(', ')})`)
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
    h(RowTable<DeniedRow>, { model, caption: 'Samples of refused packets, the latest first', columns, rows, keyOf })
  return h(List<DeniedRow>, { model, name: 'denied', at: 'denied', none: 'No packet was refused.', draw })
}

function Events({ model }: Props): VNode {
  const columns: readonly Column<EventRow>[] = [
    { title: 'At', cell: ({ at }) => h(Since, { model, at }) },
    { title: 'What', cell: (row) => row.kind },
    { title: 'Change', cell: ({ change }) => h(Badge, { state: change }) },
    { title: 'Subject', cell: (row) => row.subject, class: 'wide' },
  ]
  const keyOf = (row: EventRow): string => `${row.at} ${row.kind} ${row.change} ${row.subject}`
  const draw = (rows: readonly EventRow[]): VNode =>
    h(RowTable<EventRow>, { model, caption: 'What has changed, the latest first', columns, rows, keyOf })
  return h(List<EventRow>, { model, name: 'events', none: '-', draw })
}
