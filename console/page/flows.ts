/** Who calls whom: what is refused by which rule, calls a second of each service, and samples of calls. */
import { type VNode, h } from 'preact'
import type { CallsRow, FlowSample, RefusalRow, Section } from '../state/state.ts'
import type { PageModel } from './model.ts'
import {
  AsOf,
  Badge,
  type Column,
  Command,
  Frame,
  type Props,
  Rows,
  Since,
  RowTable,
  bytesText,
  filtered,
  msText,
} from './elements.ts'

export function Flows({ model }: Props): VNode {
  const live = model.sections.about.value?.live ?? true
  const { section, count } = filtered<FlowSample>(model, 'flows')
  const isRead = model.sections.times.value?.flows !== undefined
  const age = h(AsOf, { model, at: 'flows', live })
  return h(
    Frame,
    {
      model,
      name: 'flows',
      ...(isRead && count !== undefined ? { count } : {}),
      command: section?.command,
      commands: section?.commands,
      age,
    },
    // Without calls the samples alone say why.
    isRead ? h(Refusals, { model }) : null,
    isRead ? h(Calls, { model }) : null,
    h(Samples, { model }),
  )
}

/** What is missing of the calls that other sections show too. Undefined: nothing, or none are read. */
export function callsNote({ sections: { calls, times } }: PageModel): string | undefined {
  const { note, stale } = calls.value ?? {}
  if (times.value?.flows === undefined) return undefined
  const texts = [...(stale === undefined ? [] : [`not renewed: ${stale.why}`]), ...(note === undefined ? [] : [note])]
  return texts.length === 0 ? undefined : `Calls: ${texts.join(' ')}`
}

/** Without a value there is nothing to say, as with `-` elsewhere. */
export function rateText(perSecond: number | undefined): string {
  if (perSecond === undefined) return '-'
  return perSecond >= 10 ? perSecond.toFixed(0) : perSecond.toFixed(2)
}

function Refusals({ model }: Props): VNode {
  const found = filtered<RefusalRow>(model, 'refusals')
  const columns: readonly Column<RefusalRow>[] = [
    { title: 'Rule', cell: ({ reason }) => reason },
    { title: 'Outcome', cell: ({ outcome }) => h(Badge, { state: outcome }) },
    { title: 'Samples', cell: (row) => row.count, class: 'number' },
    { title: 'Latest', cell: ({ latest }) => h(Since, { model, at: latest }) },
    { title: 'From', cell: (row) => row.from },
    { title: 'To', cell: (row) => row.to },
  ]
  const draw = (rows: readonly RefusalRow[]): VNode =>
    h(RowTable<RefusalRow>, {
      ...{ model, caption: 'Refused samples by rule, each with its latest packet', columns, rows },
      keyOf: (row) => `${row.outcome} ${row.reason}`,
    })
  const none = 'Nothing among the samples was refused.'
  return h(
    'div',
    {},
    h(SubTitle, { model, title: 'Refused, by rule', section: found.section }),
    h(Rows<RefusalRow>, { model, name: 'refusals', found, none, draw }),
  )
}

function Calls({ model }: Props): VNode {
  const found = filtered<CallsRow>(model, 'calls')
  const columns: readonly Column<CallsRow>[] = [
    { title: 'Service', cell: ({ service }) => service },
    { title: 'Calls a second', cell: (row) => rateText(row.callsPerSecond), class: 'number' },
    { title: 'Refused', cell: (row) => row.refused, class: 'number' },
    { title: 'Unanswered', cell: (row) => row.unanswered, class: 'number' },
    { title: 'Data', cell: (row) => bytesText(row.bytesPerSecond), class: 'number' },
    { title: 'Connect p50', cell: (row) => msText(row.p50Ms), class: 'number' },
    { title: 'Connect p99', cell: (row) => msText(row.p99Ms), class: 'number' },
  ]
  const draw = (rows: readonly CallsRow[]): VNode =>
    h(RowTable<CallsRow>, { model, caption: 'Calls by service', columns, rows, keyOf: ({ service }) => service })
  return h(
    'div',
    {},
    h(SubTitle, { model, title: 'Calls by service', section: found.section }),
    h(Rows<CallsRow>, { model, name: 'calls', found, none: 'No calls to other clusters.', draw }),
  )
}

function Samples({ model }: Props): VNode {
  const found = filtered<FlowSample>(model, 'flows')
  const columns: readonly Column<FlowSample>[] = [
    { title: 'At', cell: ({ at }) => h(Since, { model, at }) },
    { title: 'From', cell: (row) => row.from },
    { title: 'To', cell: (row) => row.to },
    { title: 'Port', cell: ({ protocol, port }) => (port === undefined ? protocol : `${protocol} ${port}`) },
    { title: 'Outcome', cell: ({ outcome }) => h(Badge, { state: outcome }) },
    { title: 'Time', cell: ({ ms }) => msText(ms), class: 'number' },
    { title: 'Reason', cell: (row) => row.reason ?? '-' },
    { title: 'Node', cell: (row) => row.node ?? '-' },
  ]
  const draw = (rows: readonly FlowSample[]): VNode =>
    h(RowTable<FlowSample>, { model, caption: 'Samples of calls, the latest first', columns, rows, keyOf: keyOfSample })
  return h(
    'div',
    {},
    h('h3', {}, 'Samples'),
    h(Rows<FlowSample>, { model, name: 'flows', found, none: 'No calls.', draw }),
  )
}

function keyOfSample(row: FlowSample): string {
  return `${row.at} ${row.node ?? ''} ${row.from} ${row.to} ${row.port ?? ''} ${row.outcome}`
}

interface SubTitleProps extends Props {
  readonly title: string
  readonly section: Section<unknown> | undefined
}

function SubTitle({ model, title, section }: SubTitleProps): VNode {
  const commands = section === undefined ? [] : [section.command, ...(section.commands ?? [])]
  return h(
    'div',
    { class: 'head' },
    h('h3', {}, title),
    commands.map((command) => h(Command, { model, command, key: command })),
  )
}
