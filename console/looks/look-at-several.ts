/**
 * Looks at several contexts, each at its own pace: one that cannot be reached is opened again and again, and the others
 * do not wait for it.
 */
import { type PathQuestion, type PathSide, explainPath } from '../../explain/path/path.ts'
import { type Clock, unlessAborted } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import {
  type AskedPath,
  type ConsoleState,
  type PathAnswer,
  type PlannedState,
  planLook,
  planPath,
  planSeveral,
  withFailure,
  wrongPath,
} from '../state/state.ts'
import { looked } from './look-at-one.ts'
import type { ConsoleSource, ContextSource, Looks, LooksSink } from './source.ts'

/** One context, as far as it is known. */
interface ContextView {
  readonly of: ContextSource
  /** Set while it is open. */
  source?: ConsoleSource | undefined
  look?: PlannedState | undefined
  failing?: ConsoleState['about']['failing'] | undefined
}

/** Looks of several contexts that end together are put on the page together. */
const JOIN_MS = 100

/** Opens nothing before run(). */
export function lookAtSeveral(contexts: readonly ContextSource[], clock: Clock): Looks {
  const views = contexts.map((of): ContextView => ({ of }))
  const state = (): ConsoleState =>
    planSeveral(
      views.map(({ of: { context, flags }, look, failing }) => {
        return { context, state: look?.state, failing, command: `sealane status ${flags}` }
      }),
    )
  return {
    state,
    run: async ({ publish: send, isSeen }, signal) => {
      let cancel: (() => void) | undefined
      const publish = (): void => {
        cancel ??= clock.setTimer(JOIN_MS, () => {
          cancel = undefined
          send(state())
        })
      }
      try {
        await Promise.all(views.map((view) => follow(view, { clock, publish, isSeen }, signal)))
      } finally {
        cancel?.()
      }
    },
    explain: (question, signal) => explainBetween(views, question, signal),
  }
}

interface Following {
  readonly clock: Clock
  readonly publish: () => void
  readonly isSeen: LooksSink['isSeen']
}

/** Until the signal aborts. */
async function follow(view: ContextView, { clock, publish, isSeen }: Following, signal: AbortSignal): Promise<void> {
  const fails = (error: unknown): void => {
    if (signal.aborted) return
    const since = view.look?.state.about.failing?.since ?? view.failing?.since ?? new Date(clock.now()).toISOString()
    const why = messageOf(error)
    view.failing = { since, why }
    if (view.look !== undefined) view.look = { ...view.look, state: withFailure(view.look.state, since, why) }
    publish()
  }
  const work = async (source: ConsoleSource): Promise<void> => {
    view.source = source
    do {
      const before = view.look
      view.look =
        before === undefined
          ? planLook(await source.facts(signal, isSeen()))
          : await looked({ source, isSeen: isSeen(), clock }, before, signal)
      view.failing = undefined
      publish()
    } while (await unlessAborted(clock.sleep(source.everyMs ?? view.of.everyMs, signal), signal))
  }
  do {
    try {
      await view.of.withSource(work, signal)
    } catch (error) {
      fails(error)
    } finally {
      view.source = undefined
    }
  } while (await unlessAborted(clock.sleep(view.of.everyMs, signal), signal))
}

/**
 * By the function that `sealane explain` calls: the context of the caller, and beside it the one of the called end, or
 * all others. One of them that does not answer is said, and the rest of the path is explained.
 */
async function explainBetween(
  views: readonly ContextView[],
  { from, to, fromContext, toContext }: AskedPath,
  signal: AbortSignal,
): Promise<PathAnswer> {
  const named = (context: string | undefined): ContextView | undefined => views.find(({ of }) => of.context === context)
  const here = named(fromContext)
  const known = views.map(({ of }) => of.context).join(', ')
  if (here === undefined) return wrongPath('the context of the caller is none of this page', `expected one of ${known}`)
  const there = named(toContext)
  if (toContext !== undefined && toContext !== '' && there === undefined) {
    return wrongPath('the context of the called end is none of this page', `expected one of ${known}`)
  }
  const far = there === undefined ? views.filter((view) => view !== here) : there === here ? [] : [there]
  const question: PathQuestion = { from, to }
  const [own, ...others] = await Promise.all([
    sideOf(here, question, signal),
    ...far.map((view) =>
      sideOf(view, { from: undefined, to }, signal).then(
        (side): PathSide => ({ ...side, title: view.of.toFlag }),
        (error: unknown): string => `${view.of.context}: ${messageOf(error)}`,
      ),
    ),
  ])
  signal.throwIfAborted()
  const sides = others.flatMap((side) => (typeof side === 'string' ? [] : [side]))
  const silent = others.flatMap((side) => (typeof side === 'string' ? [side] : []))
  const flags = [here.of.flags, ...far.map(({ of }) => of.toFlag)].join(' ')
  const found = explainPath(question, { here: own, far: sides })
  const complete = 'wrong' in found ? found : { ...found, notAsked: [...silent, ...found.notAsked] }
  return planPath(complete, here.of.flags, flags)
}

async function sideOf(
  { source, failing, of: { context } }: ContextView,
  ends: Parameters<NonNullable<ConsoleSource['pathSide']>>[0],
  signal: AbortSignal,
): Promise<PathSide> {
  if (source?.pathSide === undefined) throw new Error(failing?.why ?? `context ${context} is not open yet`)
  return source.pathSide(ends, signal)
}
