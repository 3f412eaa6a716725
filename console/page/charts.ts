/** Charts of the last ten minutes that this page has seen: RTT and loss of a link, calls of a service. */
import { type VNode, h } from 'preact'
import { Command, Frame, type Props, Table, clockText, msText } from './elements.ts'
import { callsNote, rateText } from './flows.ts'
import type { PageModel } from './model.ts'
import type { SurfaceRef } from './drawing.ts'
import { MOST_LINES, type Minute, callName, callSeries, linkName, linkSeries, minutesOf } from './plan-history.ts'

/** What the charts show: what a person has chosen, or else the first of the list. */
export function chartedLink({ charted, sections: { links } }: PageModel): string {
  const [first] = links.value?.rows ?? []
  return charted.value.link ?? (first === undefined ? '' : linkName(first))
}

export function chartedService({ charted, sections: { calls } }: PageModel): string {
  const [first] = calls.value?.rows ?? []
  return charted.value.service ?? (first === undefined ? '' : callName(first))
}

export function Charts({ model }: Props): VNode {
  const live = model.sections.about.value?.live ?? true
  const text = live
    ? 'The last ten minutes that this page was open.'
    : 'A file of facts is of one time: there is nothing to draw.'
  return h(
    Frame,
    { model, name: 'charts' },
    h('p', { class: 'soft' }, text),
    live ? h(LinkChart, { model }) : null,
    live ? h(CallsChart, { model }) : null,
  )
}

function LinkChart({ model }: Props): VNode {
  const chosen = chartedLink(model)
  const names = (model.sections.links.value?.rows ?? []).map((row) => linkName(row))
  const minutes = minutesOf(linkSeries(model.history.value, chosen))
  return h(Chart, {
    ...{ model, title: 'RTT and loss of a link', label: 'Link', chosen, names, minutes },
    text: 'RTT is the solid line, on the left; loss is the dashed line, on the right.',
    command: model.sections.links.value?.command,
    columns: [
      { title: 'RTT, mean', text: ({ values: [rtt] }) => msText(rtt?.mean) },
      { title: 'RTT, highest', text: ({ values: [rtt] }) => msText(rtt?.most) },
      { title: 'Loss, mean', text: ({ values: [, loss] }) => lossText(loss?.mean) },
      { title: 'Loss, highest', text: ({ values: [, loss] }) => lossText(loss?.most) },
    ],
    onChoose: (link) => (model.charted.value = { ...model.charted.value, link }),
    drawing: model.drawings?.link,
  })
}

function CallsChart({ model }: Props): VNode {
  const chosen = chartedService(model)
  const names = (model.sections.calls.value?.rows ?? []).map(callName)
  const minutes = minutesOf(callSeries(model.history.value, chosen))
  return h(Chart, {
    ...{ model, title: 'Calls of a service', label: 'Service', chosen, names, minutes },
    text: ['Calls a second to other clusters.', callsNote(model) ?? ''].join(' ').trim(),
    command: model.sections.calls.value?.command,
    columns: [
      { title: 'Calls a second, mean', text: ({ values: [calls] }) => rateText(calls?.mean) },
      { title: 'Calls a second, highest', text: ({ values: [calls] }) => rateText(calls?.most) },
    ],
    onChoose: (service) => (model.charted.value = { ...model.charted.value, service }),
    drawing: model.drawings?.calls,
  })
}

function lossText(percent: number | undefined): string {
  return percent === undefined ? '-' : `${percent.toFixed(1)} %`
}

interface ChartProps extends Props {
  readonly title: string
  readonly text: string
  readonly command: string | undefined
  readonly label: string
  readonly chosen: string
  readonly names: readonly string[]
  readonly minutes: readonly Minute[]
  readonly columns: readonly { readonly title: string; readonly text: (minute: Minute) => string }[]
  readonly onChoose: (name: string) => void
  readonly drawing: SurfaceRef | undefined
}

/** A choice, a drawing, and a table by the minute that says the same. */
function Chart({ model, title, text, command, label, chosen, names, minutes, columns, ...of }: ChartProps): VNode {
  const head = h(
    'div',
    { class: 'head' },
    h('h3', {}, title),
    command === undefined ? null : h(Command, { model, command }),
  )
  // What was chosen may be gone meanwhile, and its history is still here.
  const offered = [...new Set([...(chosen === '' ? [] : [chosen]), ...names.slice(0, MOST_LINES)])]
  if (offered.length === 0) return h('div', {}, head, h('p', {}, 'Nothing to show yet.'))
  const choice = h(
    'select',
    {
      value: chosen,
      onChange: (event: { readonly currentTarget: { readonly value: string } }) => {
        of.onChoose(event.currentTarget.value)
      },
    },
    offered.map((name) => h('option', { value: name, selected: name === chosen, key: name }, name)),
  )
  return h(
    'div',
    {},
    head,
    h('label', {}, `${label} `, choice),
    h('p', { class: 'soft' }, text),
    h('div', {
      ...{ class: 'chart', role: 'img', 'aria-label': `${title}: ${chosen}. The table below says the same.` },
      ref: of.drawing,
    }),
    h(Table<Minute>, {
      caption: `${title}: ${chosen}, by the minute`,
      columns: [
        { title: 'Minute', cell: ({ at }: Minute) => clockText(at).slice(11) },
        ...columns.map(({ title, text }) => ({ title, cell: text, class: 'number' as const })),
      ],
      rows: minutes,
      keyOf: ({ at }) => at,
    }),
  )
}
