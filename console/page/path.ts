/** One path explained: a person names two ends, and sees each step, the result, and the command to run next. */
import { type VNode, h } from 'preact'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { ExplainedPath, PathAnswer, StepRow, WayRow } from '../state/state.ts'
import { Badge, Command, Frame, type Props, Since } from './elements.ts'
import type { PageModel, TypedEnds } from './model.ts'

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
/** As long as the server asks to wait while it explains another path. */
const AGAIN_MS = 1000

/**
 * The server explains one path at a time: that of another page, or one that this page no longer waits for, is waited
 * for. Ends with `signal`.
 */
export async function askServer(
  browser: Asking,
  clock: Clock,
  ends: TypedEnds,
  signal: AbortSignal,
): Promise<PathAnswer> {
  const query = new URLSearchParams({ ...ends }).toString()
  const limited = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)])
  try {
    for (;;) {
      const response = await browser.fetch(`./api/explain?${query}`, { signal: limited })
      const { status } = response
      if (status === 401) browser.location.assign('./')
      const text = await response.text()
      if ([200, 400, 502, 504].includes(status)) return JSON.parse(text) as PathAnswer
      if (status !== 429) return { t: 'failed', why: text.trim() }
      await clock.sleep(AGAIN_MS, limited)
    }
  } catch {
    return { t: 'failed', why: 'the console does not answer' }
  }
}

/** Asks for the ends that the form has. A second question takes the place of the first. */
export async function askPath(model: PageModel): Promise<void> {
  if (model.explain === undefined) return
  const { from, to, ...contexts } = model.ends.value
  const asking = new AbortController()
  model.asking.value?.abort()
  model.asking.value = asking
  model.path.value = { t: 'waiting' }
  const [first] = model.sections.about.value?.contexts ?? []
  const caller = first === undefined ? {} : { fromContext: contexts.fromContext ?? first.context }
  const answer = await model.explain({ ...contexts, ...caller, from: from.trim(), to: to.trim() }, asking.signal)
  // The answer to a later question is the one that counts.
  if (model.asking.value === asking) model.path.value = answer
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
      h(ContextOf, { model, end: 'fromContext', title: 'of context', all: undefined }),
      h(End, { model, end: 'to', title: 'To', offered: services.map(({ namespace, name }) => `${name}.${namespace}`) }),
      h(ContextOf, { model, end: 'toContext', title: 'asked at context', all: 'all others' }),
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
      [...new Set(offered)].slice(0, MOST_OFFERED).map((value) => h('option', { value, key: value })),
    ),
  )
}

interface ContextOfProps extends Props {
  readonly end: 'fromContext' | 'toContext'
  readonly title: string
  /** What stands for no choice. */
  readonly all: string | undefined
}

/** Nothing on a page about one cluster. */
function ContextOf({ model, end, title, all }: ContextOfProps): VNode | null {
  const contexts = model.sections.about.value?.contexts
  if (contexts === undefined) return null
  const names = contexts.map(({ context }) => context)
  const chosen = model.ends.value[end] ?? (all === undefined ? (names[0] ?? '') : '')
  const choices = [...(all === undefined ? [] : [['', all] as const]), ...names.map((name) => [name, name] as const)]
  return h(
    'label',
    {},
    `${title} `,
    h(
      'select',
      {
        ...{ name: end, value: chosen },
        onChange: (event: { readonly currentTarget: { readonly value: string } }) => {
          model.ends.value = { ...model.ends.value, [end]: event.currentTarget.value }
        },
      },
      choices.map(([value, text]) => h('option', { value, selected: value === chosen, key: value }, text)),
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
