/**
 * What has changed from one look to the next: gateways, links, imports, problems; at a broker members and services. What was not read has not changed.
 * Pure.
 */
import type { EventRow, Section } from './document.ts'
import { MAX_MESSAGE, clipped } from './plan-rows.ts'

/** The latest events. */
const MOST_EVENTS = 200
/** Of one kind in one look; the rest is one event that counts them. */
const MOST_AT_ONCE = 30

/** By subject: the state of each, also of those for which their sections have no place. Absent: never read. */
export interface SeenStates {
  readonly gateways?: ReadonlyMap<string, string>
  readonly links?: ReadonlyMap<string, string>
  readonly imports?: ReadonlyMap<string, string>
  /** At a broker: its members, and the services that they export. */
  readonly members?: ReadonlyMap<string, string>
  readonly services?: ReadonlyMap<string, string>
  /** With the source that it was seen at. */
  readonly problems?: ReadonlyMap<string, string>
}

const KINDS = ['problems', 'members', 'gateways', 'links', 'imports', 'services'] as const
type Kind = (typeof KINDS)[number]

const TITLES = {
  problems: 'problem',
  members: 'member',
  gateways: 'gateway',
  links: 'link',
  imports: 'import',
  services: 'service',
} as const
/** What is said of a subject that comes or goes. The others have states of their own. */
const COMES = {
  problems: 'begins',
  members: undefined,
  gateways: undefined,
  links: undefined,
  imports: 'appears',
  services: 'appears',
} as const
const GOES = {
  problems: 'ends',
  members: 'gone',
  gateways: 'gone',
  links: 'gone',
  imports: 'disappears',
  services: 'disappears',
} as const

/** What was seen last of each kind. */
export function seenOf(now: SeenStates, before: SeenStates | undefined): SeenStates {
  return { ...before, ...now }
}

/** Events from one look to the next, the problems first. `at` is when the facts were taken. */
export function planEvents(before: SeenStates | undefined, now: SeenStates, at: string): readonly EventRow[] {
  return KINDS.flatMap((kind) => {
    const [earlier, later] = [before?.[kind], now[kind]]
    if (earlier === undefined || later === undefined) return []
    const changes = [...changesOf(kind, earlier, later)]
    const shown = changes.slice(0, changes.length > MOST_AT_ONCE ? MOST_AT_ONCE - 1 : MOST_AT_ONCE)
    const rest = changes.length - shown.length
    return [...shown, ...(rest > 0 ? [{ change: 'more', subject: `${rest} more at this time` }] : [])].map(
      ({ change, subject }): EventRow => ({
        ...{ at: clipped(at), kind: TITLES[kind], change },
        subject: clipped(subject, MAX_MESSAGE),
      }),
    )
  })
}

interface Change {
  readonly change: string
  readonly subject: string
}

function* changesOf(
  kind: Kind,
  earlier: ReadonlyMap<string, string>,
  later: ReadonlyMap<string, string>,
): Generator<Change> {
  for (const [subject, state] of later) {
    const was = earlier.get(subject)
    if (was === undefined) yield { change: COMES[kind] ?? state, subject }
    // A problem may be seen at another source while it lasts.
    else if (was !== state && kind !== 'problems') yield { change: state, subject }
  }
  for (const subject of earlier.keys()) if (!later.has(subject)) yield { change: GOES[kind], subject }
}

/** The section: new events before those of earlier looks. `since`: when the console began to look. */
export function eventsOf(
  fresh: readonly EventRow[],
  before: Section<EventRow> | undefined,
  { command, since }: Pick<Section<EventRow>, 'command'> & { readonly since: string | undefined },
): Section<EventRow> {
  if (since === undefined) {
    return { command, rows: [], more: 0, note: 'A file of facts is of one time: nothing changes in it.' }
  }
  const all = [...fresh, ...(before?.rows ?? [])]
  const rows = all.slice(0, MOST_EVENTS)
  const note = `${rows.length === 0 ? 'Nothing has changed since' : 'Since'} this console started at ${clipped(since)}.`
  return { command, rows, more: (before?.more ?? 0) + all.length - rows.length, note }
}
