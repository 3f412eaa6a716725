/**
 * One document for a page about several contexts, from the document of each: every row names its context. A context
 * that cannot be reached keeps the rows that it said last, and the page says since when they are old. Pure.
 */
import type { About, ConsoleState, ContextRow, OfContext, Section, Times } from './document.ts'
import { MAX_MESSAGE, clipped, compare, section } from './plan-rows.ts'
import { MOST, SERVICE_RANK } from './plan-state.ts'

/** Each is looked at on its own. */
export const MOST_CONTEXTS = 16
const MOST_EVENTS = 200

export interface ContextState {
  readonly context: string
  /** Undefined until the first answer. */
  readonly state: ConsoleState | undefined
  /** Why there is no state yet, and since when (RFC 3339). */
  readonly failing?: About['failing'] | undefined
  /** The command that says its state. */
  readonly command: string
}

type Names = Exclude<keyof ConsoleState, 'format' | 'about' | 'times'>
type RowOf<K extends Names> = ConsoleState[K]['rows'][number]

/** At least one context. */
export function planSeveral(contexts: readonly ContextState[]): ConsoleState {
  const rows = contexts.map(contextRow)
  const known = contexts.flatMap(({ context, state }) => (state === undefined ? [] : [{ context, state }]))
  const joined = <K extends Names>(name: K, most: number, order: Order<RowOf<K>>): ConsoleState[K] =>
    joinedSection(
      known.map(({ context, state }) => ({ context: clipped(context), section: state[name] })),
      { most, order },
    ) as ConsoleState[K]
  const { problems, clusters, gateways, links, services, denied } = MOST
  return {
    format: 1,
    about: aboutOf(rows, known),
    times: timesOf(rows, known),
    problems: joined(
      'problems',
      problems,
      byRank(({ severity }) => ({ down: 0, degraded: 1, notice: 2 })[severity]),
    ),
    clusters: joined(
      'clusters',
      clusters,
      byRank(({ state }) => ({ 'cut off': 0, silent: 0, unknown: 1, here: 2, reached: 3, 'in contact': 3 })[state]),
    ),
    gateways: joined('gateways', gateways, AS_THEY_ARE),
    links: joined(
      'links',
      links,
      byRank(({ state }) => ({ down: 0, connecting: 1, up: 2 })[state]),
    ),
    services: joined(
      'services',
      services,
      byRank(({ state }) => SERVICE_RANK[state]),
    ),
    refusals: joined('refusals', problems, (a, b) => b.count - a.count),
    calls: joined('calls', services, (a, b) => errors(b) - errors(a) || b.callsPerSecond - a.callsPerSecond),
    flows: joined('flows', denied, latestFirst),
    denied: joined('denied', denied, latestFirst),
    events: joined('events', MOST_EVENTS, latestFirst),
  }
}

type Order<T> = (a: T, b: T) => number

const AS_THEY_ARE = (): number => 0

function byRank<T>(rankOf: (row: T) => number): Order<T> {
  return (a, b) => rankOf(a) - rankOf(b)
}

function latestFirst(a: { readonly at: string }, b: { readonly at: string }): number {
  return compare(b.at, a.at)
}

/** Services with errors come first. */
function errors({ refused, unanswered }: { readonly refused: number; readonly unanswered: number }): number {
  return refused + unanswered > 0 ? 1 : 0
}

function contextRow({ context, state, failing, command }: ContextState): ContextRow {
  const why = state?.about.failing ?? failing
  const cluster = state?.about.cluster
  return {
    context: clipped(context),
    ...(cluster === undefined ? {} : { cluster }),
    ...(state === undefined ? {} : { health: state.about.health, problems: state.about.counts.problems }),
    ...(state === undefined ? {} : { facts: state.times.facts }),
    command: clipped(command, MAX_MESSAGE),
    ...(why === undefined ? {} : { failing: { since: clipped(why.since), why: clipped(why.why, MAX_MESSAGE) } }),
  }
}

interface KnownContext {
  readonly context: string
  readonly state: ConsoleState
}

interface ContextSection<T> {
  readonly context: string
  readonly section: Section<T>
}

/** The rows of each context keep their order where `order` does not decide. */
function joinedSection<T extends OfContext>(
  all: readonly ContextSection<T>[],
  { most, order }: { readonly most: number; readonly order: Order<T> },
): Section<T> {
  const rows = all.flatMap(({ context, section: { rows } }) => rows.map((row) => ({ ...row, context }))).sort(order)
  const [command = '', ...commands] = all.map(({ section: { command } }) => command)
  const { more, ...shown } = section(command, rows, most, (row) => row)
  const stale = all.flatMap(({ context, section: { stale } }) => (stale === undefined ? [] : [{ context, ...stale }]))
  const times = stale.flatMap(({ at }) => at ?? [])
  const notes = all.flatMap(({ context, section: { note } }) => (note === undefined ? [] : [`${context}: ${note}`]))
  const why = stale.map((one) => `${one.context}: ${one.why}`).join('; ')
  const [at] = times.sort(compare)
  return {
    ...shown,
    commands,
    more: more + all.reduce((sum, { section: { more } }) => sum + more, 0),
    ...(notes.length === 0 ? {} : { note: clipped(notes.join(' '), MAX_MESSAGE) }),
    // Without a time they were never read whole, which is the worse of the two.
    ...(stale.length === 0
      ? {}
      : {
          stale: {
            ...(at === undefined || times.length < stale.length ? {} : { at }),
            why: clipped(why, MAX_MESSAGE),
          },
        }),
  }
}

const HEALTH_RANK = { down: 0, degraded: 1, healthy: 2 } as const

/** Each cluster counts once, however many contexts see it: as reached if all of them reach it. */
function aboutOf(rows: readonly ContextRow[], known: readonly KnownContext[]): About {
  const states = known.map(({ state }) => state)
  const others = states.flatMap(({ clusters }) => clusters.rows.filter(({ state }) => state !== 'here'))
  const [ids, cut] = [others, others.filter(({ state }) => state !== 'reached')].map(
    (cards) => new Set(cards.map(({ cluster }) => cluster)).size,
  )
  const sum = (of: (counts: About['counts']) => number): number =>
    states.reduce((all, { about }) => all + of(about.counts), 0)
  const services = new Set(
    states.flatMap(({ services }) => services.rows.map(({ namespace, name }) => `${namespace}/${name}`)),
  )
  const [clusterset, ...more] = new Set(states.map(({ about }) => about.clusterset ?? ''))
  const healths = states.map(({ about }) => about.health)
  const isFailing = rows.some(({ failing }) => failing !== undefined)
  const worst = healths.sort((a, b) => HEALTH_RANK[a] - HEALTH_RANK[b])[0] ?? 'down'
  const [first] = rows.flatMap(({ failing }) => failing?.since ?? []).sort(compare)
  const whys = rows.flatMap(({ context, failing }) => (failing === undefined ? [] : [`${context}: ${failing.why}`]))
  return {
    target: clipped(`contexts ${rows.map(({ context }) => context).join(', ')}`, MAX_MESSAGE),
    ...(clusterset === undefined || clusterset === '' || more.length > 0 ? {} : { clusterset }),
    // What a context that is silent would say is not known.
    health: isFailing && worst === 'healthy' ? 'degraded' : worst,
    live: true,
    command: rows[0]?.command ?? '',
    counts: {
      problems: sum(({ problems }) => problems),
      ...{ clustersReached: (ids ?? 0) - (cut ?? 0), clusters: ids ?? 0 },
      ...{ linksUp: sum(({ linksUp }) => linksUp), links: sum(({ links }) => links) },
      services: services.size,
    },
    ...(first === undefined || whys.length < rows.length
      ? {}
      : { failing: { since: first, why: clipped(whys.join('; '), MAX_MESSAGE) } }),
    contexts: rows,
  }
}

/** The oldest of the contexts that answer: nothing on the page is older, but for what says so itself. */
function timesOf(rows: readonly ContextRow[], known: readonly KnownContext[]): Times {
  const silent = new Set(rows.flatMap(({ context, failing }) => (failing === undefined ? [] : [context])))
  const answering = known.filter(({ context }) => !silent.has(clipped(context)))
  const all = (answering.length === 0 ? known : answering).map(({ state }) => state.times)
  const oldest = (of: (times: Times) => string | undefined): string | undefined =>
    all.flatMap((times) => of(times) ?? []).sort(compare)[0]
  const [shares, flows, denied] = [oldest((one) => one.shares), oldest((one) => one.flows), oldest((one) => one.denied)]
  return {
    facts: oldest(({ facts }) => facts) ?? '',
    ...(shares === undefined ? {} : { shares }),
    ...(flows === undefined ? {} : { flows }),
    ...(denied === undefined ? {} : { denied }),
  }
}
