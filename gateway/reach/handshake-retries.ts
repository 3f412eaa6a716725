/** Remembers which call each far end got last, so that a round knows who is to be called anew. */
import { type FarEnd, linkKey } from '../cable/cable.ts'
import type { EndpointChoice } from './choose-endpoint.ts'

export class HandshakeRetries {
  /** Number of the last call, by linkKey(): of far ends that are being called only. */
  #last: ReadonlyMap<string, number> = new Map()

  /** linkKey() of the links whose next call is due. The first call (0) needs nothing: the link is new or was up. */
  due(links: readonly (FarEnd & { readonly choice: EndpointChoice })[]): Set<string> {
    const attempts = new Map(
      links.flatMap((link) => {
        const { attempt } = link.choice
        return attempt === undefined ? [] : [[linkKey(link), attempt] as const]
      }),
    )
    const due = [...attempts].filter(([key, attempt]) => attempt > 0 && this.#last.get(key) !== attempt)
    this.#last = attempts
    return new Set(due.map(([key]) => key))
  }
}
