/** What the page knows: the sections as the server sent them last, and what a person has chosen. */
import { type Signal, batch, signal } from '@preact/signals'
import type {
  About,
  CallsRow,
  ClusterCard,
  ConsoleState,
  DeniedRow,
  EventRow,
  FlowSample,
  GatewayRow,
  LinkRow,
  OfContext,
  PathAnswer,
  ProblemRow,
  RefusalRow,
  Section,
  ServiceRow,
  Times,
} from '../state/state.ts'
import type { SurfaceRef } from './drawing.ts'
import { type HistorySample, sampleOf, withSample } from './plan-history.ts'

type Rows = Omit<ConsoleState, 'format'>

/** What the views read. Each section is a signal of its own, so that only what has changed is drawn again. */
export interface PageModel {
  readonly sections: { readonly [name in keyof Rows]: Signal<Rows[name] | undefined> }
  readonly filter: Signal<string>
  /** Milliseconds since 1970, by this machine's clock, once a second. */
  readonly now: Signal<number>
  /** Nothing changes on the page until a person lets it go on. */
  readonly paused: Signal<boolean>
  /** What came while it is paused: the newest of each section. */
  readonly aside: Signal<Partial<ConsoleState>>
  /** Since when the server is silent. Undefined while it answers. */
  readonly lostSince: Signal<number | undefined>
  /** Read out by screen readers, at most every few seconds. */
  readonly announcement: Signal<string>
  /** The last command that was copied. */
  readonly copied: Signal<string>
  /** The sections of which all rows are shown. */
  readonly open: Signal<ReadonlySet<string>>
  /** The regions of which the map shows each cluster. */
  readonly regions: Signal<ReadonlySet<string>>
  /** Of the last ten minutes that the page was open. */
  readonly history: Signal<readonly HistorySample[]>
  /** When the calls of the last sample were read. */
  readonly callsAt: Signal<string | undefined>
  /** The link and the service of the charts. Absent: the first of its list. */
  readonly charted: Signal<{ readonly link?: string; readonly service?: string }>
  /** What a person wants to have explained, as it was typed. */
  readonly ends: Signal<TypedEnds>
  /** Ends the question that waits for its answer. */
  readonly asking: Signal<AbortController | undefined>
  readonly path: Signal<PathAnswer | { readonly t: 'waiting' } | undefined>
  /** Asks the server. Undefined outside a browser. Never rejects. */
  readonly explain: ((ends: TypedEnds, signal: AbortSignal) => Promise<PathAnswer>) | undefined
  /** Undefined outside a browser: then tables alone say it. */
  readonly drawings: Drawings | undefined
  /** Undefined where the browser gives a page no clipboard. */
  readonly copy: ((text: string) => void) | undefined
}

export interface TypedEnds {
  readonly from: string
  readonly to: string
  /** On a page about several contexts. Absent: the first; all others. */
  readonly fromContext?: string
  readonly toContext?: string
}

export interface Drawings {
  readonly map: SurfaceRef
  readonly link: SurfaceRef
  readonly calls: SurfaceRef
}

/** What only a browser can do. */
export type BrowserParts = Pick<PageModel, 'drawings' | 'explain'>

export function createModel(
  now: number,
  copy: PageModel['copy'],
  parts: (model: PageModel) => BrowserParts = () => ({ drawings: undefined, explain: undefined }),
): PageModel {
  const model: PageModel = {
    sections: {
      about: signal<About | undefined>(undefined),
      times: signal<Times | undefined>(undefined),
      problems: signal<Section<ProblemRow> | undefined>(undefined),
      clusters: signal<Section<ClusterCard> | undefined>(undefined),
      gateways: signal<Section<GatewayRow> | undefined>(undefined),
      links: signal<Section<LinkRow> | undefined>(undefined),
      services: signal<Section<ServiceRow> | undefined>(undefined),
      refusals: signal<Section<RefusalRow> | undefined>(undefined),
      calls: signal<Section<CallsRow> | undefined>(undefined),
      flows: signal<Section<FlowSample> | undefined>(undefined),
      denied: signal<Section<DeniedRow> | undefined>(undefined),
      events: signal<Section<EventRow> | undefined>(undefined),
    },
    filter: signal(''),
    now: signal(now),
    paused: signal(false),
    aside: signal<Partial<ConsoleState>>({}),
    lostSince: signal<number | undefined>(undefined),
    announcement: signal(''),
    copied: signal(''),
    open: signal<ReadonlySet<string>>(new Set()),
    regions: signal<ReadonlySet<string>>(new Set()),
    history: signal<readonly HistorySample[]>([]),
    callsAt: signal<string | undefined>(undefined),
    charted: signal<PageModel['charted']['value']>({}),
    ends: signal<TypedEnds>({ from: '', to: '' }),
    asking: signal<AbortController | undefined>(undefined),
    path: signal<PageModel['path']['value']>(undefined),
    ...{ drawings: undefined, explain: undefined },
    copy,
  }
  return { ...model, ...parts(model) }
}

/** Pauses the page, or lets it go on with the newest of what has come meanwhile. */
export function togglePause(model: PageModel): void {
  batch(() => {
    model.paused.value = !model.paused.value
    if (model.paused.value) return
    const came = model.aside.value
    model.aside.value = {}
    takeSections(model, came)
  })
}

/** Takes what an event or a snapshot says. Sections of a later release are left out. */
export function takeSections(model: PageModel, said: Partial<ConsoleState>): void {
  if (model.paused.value) {
    model.aside.value = { ...model.aside.value, ...said }
    return
  }
  const known = new Map<string, { value: unknown }>(Object.entries(model.sections))
  const { times } = said
  batch(() => {
    for (const [name, value] of Object.entries(said)) {
      const one = known.get(name)
      if (one !== undefined) one.value = value
    }
    if (times !== undefined) remember(model, times)
  })
}

/** A page that was just opened may get calls of before: they are not drawn at the time of this look. */
const FRESH_MS = 30_000

/** Each look has a time of its own. Calls are read less often in a cluster: each reading counts once. */
function remember({ sections: { links, calls, about }, history, callsAt }: PageModel, times: Times): void {
  if (about.value?.live !== true) return
  // What a silent context said last is not of now.
  const silent = new Set(
    about.value.contexts?.flatMap(({ context, failing }) => (failing === undefined ? [] : context)),
  )
  const ofNow = <T extends OfContext>(rows: readonly T[] | undefined): readonly T[] | undefined =>
    silent.size === 0 ? rows : rows?.filter(({ context = '' }) => !silent.has(context))
  const isNew =
    times.flows !== undefined &&
    times.flows !== callsAt.value &&
    Date.parse(times.facts) - Date.parse(times.flows) < FRESH_MS
  const linksNow = links.value?.stale === undefined ? links.value?.rows : undefined
  const sample = sampleOf(Date.parse(times.facts), ofNow(linksNow), isNew ? ofNow(calls.value?.rows) : undefined)
  const next = withSample(history.value, sample)
  if (next === history.value) return
  history.value = next
  callsAt.value = times.flows
}

/** What a screen reader says about the whole. */
export function summaryOf(about: About): string {
  const { health, counts } = about
  const { problems, linksUp, links } = counts
  const count = `${problems} problem${problems === 1 ? '' : 's'}`
  return `${health}, ${count}, ${reachedText(about)}, ${linksUp} of ${links} links up`
}

/** A broker does not know who reaches whom. */
export function reachedText({ broker, counts: { clustersReached, clusters } }: About): string {
  return `${clustersReached} of ${clusters} ${broker === undefined ? 'clusters reached' : 'members in contact'}`
}

/** Whether a row says the text, in whatever field. `filter` is in lower case. */
export function matches(row: unknown, filter: string): boolean {
  if (typeof row === 'string') return row.toLowerCase().includes(filter)
  if (typeof row === 'number') return String(row).includes(filter)
  return typeof row === 'object' && row !== null && Object.values(row).some((value) => matches(value, filter))
}
