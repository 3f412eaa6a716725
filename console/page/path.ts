/** One path explained: a person names two ends, and sees each step, the result, and the command to run next. */
import { type VNode, h } from 'preact'
import type { ExplainedPath, PathAnswer, StepRow, WayRow } from '../state/state.ts'
import { Badge, Command, Frame, type Props, Since } from './elements.ts'
import type { PageModel } from './model.ts'

/** What asking takes of a browser. */
export interface Asking {
  readonly location: { assign(path: string): void }
  fetch(
    path: string,
    init: { readonly signal: AbortSignal },
  ): Promise<{ readonly status: number; text(): Promise<string> }>
}

/** The server gives up after 30 s, and says so. */
const ANSWER_MS = 35_000

/** The server explains one path at a time, and says so to all others. */
export async function askServer(browser: Asking, from: string, to: string): Promise<PathAnswer> {
  const query = new URLSearchParams({ from, to }).toString()
  try {
    const response = await browser.fetch(`/api/explain?${query}`, { signal: AbortSignal.timeout(ANSWER_MS) })
    const { status } = response
    if (status === 401) browser.location.assign('/')
    const text = await response.text()
    if ([200, 400, 502, 504].includes(status)) return JSON.parse(text) as PathAnswer
    return { t: 'failed', why: text.trim() }
  } catch {
    return { t: 'failed', why: 'the console does not answer' }
  }
}

/** Asks for the ends that the form has. A second question waits for the answer to the first. */
export async function askPath(model: PageModel): Promise<void> {
  const { from, to } = model.ends.value
  if (model.explain === undefined || model.path.value?.t === 'waiting') return
  model.path.value = { t: 'waiting' }
  model.path.value = await model.explain(from.trim(), to.trim())
}

const MOST_OFFERED = 200
const HINT =
  'From: NAMESPACE/POD, the name of a node, or an address. To: SERVICE.NAMESPACE or an address, then :PORT, then /udp ' +
  'if it is UDP.'

export function PathSection({ model }: Props): VNode {
  const shown = model.path.value
  const example = model.sections.about.value?.command.replace(/^sealane status/, 'sealane explain FROM TO')
  const command = shown?.t === 'explained' ? shown.command : example
  const gateways = model.sections.gateways.value?.rows ?? []
  const services = model.sections.services.value?.rows ?? []
  return h(
    Frame,
    { model, name: 'path', command },
    h(
      'form',
      {
        class: 'ends',
        onSubmit: (event: { preventDefault(): void }) => {
          event.preventDefault()
          void askPath(model)
        },
      },
      h(End, { model, end: 'from', title: 'From', offered: gateways.map(({ node }) => node) }),
      h(End, { model, end: 'to', title: 'To', offered: services.map(({ namespace, name }) => `${name}.${namespace}`) }),
      h('button', { type: 'submit' }, 'Explain'),
    ),
    h('p', { class: 'soft', id: 'path-hint' }, HINT),
    h('p', { role: 'status' }, shown === undefined ? '' : resultText(shown)),
    shown?.t === 'explained' ? h(Explained, { model, path: shown }) : null,
  )
}

interface EndProps extends Props {
  readonly end: 'from' | 'to'
  readonly title: string
  readonly offered: readonly string[]
}

function End({ model, end, title, offered }: EndProps): VNode {
  return h(
    'label',
    {},
    `${title} `,
    h('input', {
      ...{ name: end, list: `path-${end}`, required: true, maxLength: 320, spellcheck: false, autocomplete: 'off' },
      ...{ 'aria-describedby': 'path-hint', value: model.ends.value[end] },
      onInput: (event: { readonly currentTarget: { readonly value: string } }) => {
        model.ends.value = { ...model.ends.value, [end]: event.currentTarget.value }
      },
    }),
    h(
      'datalist',
      { id: `path-${end}` },
      offered.slice(0, MOST_OFFERED).map((value) => h('option', { value, key: value })),
    ),
  )
}

/** Read out when it comes. */
function resultText(shown: NonNullable<PageModel['path']['value']>): string {
  switch (shown.t) {
    case 'waiting':
      return 'Reading facts.'
    case 'wrong':
      return `${shown.wrong}${shown.hint === '' ? '' : `; ${shown.hint}`}`
    case 'failed':
      return `No answer: ${shown.why}`
    case 'explained':
      return `${shown.outcome}: ${shown.from} to ${shown.to}. ${shown.message}`
  }
}

function Explained({ model, path }: Props & { readonly path: ExplainedPath }): VNode {
  const { outcome, failing, takenAt, next, nextAt, ways, waysLeftOut, steps, stepsLeftOut, notAsked } = path
  const end = failing === undefined ? '' : ` at step ${failing}`
  return h(
    'div',
    {},
    h('p', {}, h(Badge, { state: outcome }), end),
    h('p', { class: 'soft' }, 'as of ', h(Since, { model, at: takenAt })),
    next === undefined
      ? null
      : h('p', {}, nextAt === undefined ? 'Next: ' : `Next, in ${nextAt}: `, h(Command, { model, command: next })),
    ways.length < 2 && waysLeftOut === 0
      ? null
      : h(
          'ul',
          { class: 'list' },
          ways.map((way) => h(Way, { way, key: way.cluster })),
          waysLeftOut === 0 ? null : h('li', {}, `and ${waysLeftOut} more ways`),
        ),
    h(
      'ol',
      { class: 'steps' },
      steps.map((step) => h(Step, { step, isEnd: step.seq === failing, key: String(step.seq) })),
    ),
    stepsLeftOut === 0 ? null : h('p', { class: 'soft' }, `and ${stepsLeftOut} more steps; see: ${path.command}`),
    notAsked.length === 0
      ? null
      : h(
          'div',
          {},
          h('h3', {}, 'Could not be asked'),
          h(
            'ul',
            { class: 'list' },
            notAsked.map((one) => h('li', { key: one }, one)),
          ),
        ),
  )
}

function Way({ way: { cluster, share, outcome, failing } }: { readonly way: WayRow }): VNode {
  const part = share === undefined ? '' : ` (${share / 100} %)`
  const end = failing === undefined ? '' : ` at step ${failing}`
  return h('li', {}, `way to ${cluster}${part}: `, h(Badge, { state: outcome }), end)
}

interface StepProps {
  readonly step: StepRow
  readonly isEnd: boolean
}

function Step({ step, isEnd }: StepProps): VNode {
  const { seq, way, isBack, station, cluster, node, decision, reason, message, rewrites, notes } = step
  const place = [cluster, ...(node === undefined ? [] : [node]), ...(way === undefined ? [] : [`way to ${way}`])]
  return h(
    'li',
    { class: isEnd ? 'step end' : 'step' },
    h(
      'h3',
      {},
      `${seq}. ${station}${isBack ? ' (back)' : ''} `,
      h(Badge, { state: decision }),
      isEnd ? ' the path ends here' : '',
    ),
    h('p', { class: 'soft' }, `${place.join(', ')}: ${step.component}`),
    h('p', {}, reason === undefined ? message : `${reason}: ${message}`),
    rewrites === undefined ? null : h('p', {}, h('code', {}, rewrites)),
    notes.map((note) => h('p', { class: 'soft', key: note }, note)),
    h('p', { class: 'soft' }, `${step.evidence}, ${step.source}, ${step.ageSeconds} s old`),
  )
}
