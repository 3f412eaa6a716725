/** How many members there are in each state, counted as they change: a clusterset of a thousand changes all the time. */
import type { LogView } from '../log/record-log.ts'
import type { BrokerMetrics } from '../metrics.ts'
import { type MemberRow, isLive } from '../state/state.ts'

type State = 'live' | 'complete' | 'departed'

export class MemberCounts {
  readonly #metrics: Pick<BrokerMetrics, 'members'>
  readonly #states = new Map<string, State>()
  readonly #counts: Record<State, number> = { live: 0, complete: 0, departed: 0 }

  constructor(metrics: Pick<BrokerMetrics, 'members'>) {
    this.#metrics = metrics
  }

  /** Looks at all: to be called at the start, and now and then. */
  recount(view: LogView): void {
    this.#states.clear()
    for (const state of Object.keys(this.#counts) as State[]) this.#counts[state] = 0
    this.take(
      view,
      view.list('member').map(({ key }) => key),
    )
  }

  /** Looks at these. */
  take(view: LogView, ids: readonly string[]): void {
    for (const id of ids) this.#move(id, stateOf(view.get('member', id)))
    const { live, complete, departed } = this.#counts
    this.#metrics.members.set(live + complete, { state: 'live' })
    this.#metrics.members.set(complete, { state: 'complete' })
    this.#metrics.members.set(departed, { state: 'departed' })
  }

  #move(id: string, now: State | undefined): void {
    const before = this.#states.get(id)
    if (before === now) return
    if (before !== undefined) this.#counts[before] -= 1
    if (now === undefined) this.#states.delete(id)
    else {
      this.#states.set(id, now)
      this.#counts[now] += 1
    }
  }
}

function stateOf(row: MemberRow | undefined): State | undefined {
  if (row === undefined) return undefined
  if (!isLive(row)) return 'departed'
  return row.complete ? 'complete' : 'live'
}
