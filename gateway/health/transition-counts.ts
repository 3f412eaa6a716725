/** Counts the changes of state of each link, and forgets a link that is gone: other members come and go for years. */
import type { ConnectionState } from '../../model/objects.ts'
import { type GatewayMetrics, laneLabels } from '../metrics.ts'

export interface CountedLink {
  readonly cluster: string
  readonly ownLane: number
  readonly remoteLane: number
}

const STATES: readonly ConnectionState[] = ['connecting', 'up', 'down']

export class TransitionCounts {
  readonly #counter: GatewayMetrics['transitions']
  #links: ReadonlyMap<string, CountedLink> = new Map()

  constructor({ transitions }: Pick<GatewayMetrics, 'transitions'>) {
    this.#counter = transitions
  }

  count(link: CountedLink, state: ConnectionState): void {
    this.#counter.inc({ ...labelsOf(link), state })
  }

  /** These are the links there are. */
  keep(links: readonly CountedLink[]): void {
    const now = new Map(links.map((link) => [JSON.stringify(labelsOf(link)), link]))
    for (const [key, link] of this.#links) {
      if (now.has(key)) continue
      for (const state of STATES) this.#counter.remove({ ...labelsOf(link), state })
    }
    this.#links = now
  }
}

function labelsOf({ cluster, ...lanes }: CountedLink) {
  return { cluster, ...laneLabels(lanes) }
}
