/** Told of members in the broker's log: what stands from before, and what two of them do to each other. */
import { isReservedId } from '../../model/ids.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import type { LogView } from '../log/record-log.ts'
import { clashText, serviceClashes } from '../addresses/service-clashes.ts'
import { isLive } from '../state/state.ts'

/** At one look; `sealane cluster list` has all. */
const MAX_LOGGED_CLASHES = 20

export class MemberWarnings {
  readonly #log: LogView
  readonly #logger: Logger
  #toldClashes: ReadonlySet<string> = new Set()

  constructor({ log, logger }: { readonly log: LogView; readonly logger: Logger }) {
    this.#log = log
    this.#logger = logger
  }

  /** To be called once. */
  tellReservedIds(): void {
    const members = this.#log.list('member')
    const ids = members.flatMap(({ key, value }) => (isLive(value) && isReservedId(key) ? [key] : []))
    if (ids.length === 0) return
    const clusters = ids.join(', ')
    this.#logger.warn('members have ids that are reserved now: they stay, until they leave', {
      reason: 'ClusterIdReserved',
      clusters,
    })
  }

  /** To be called now and then: each is told once, as long as it lasts. */
  tellClashes(): void {
    const texts = serviceClashes(this.#log.list('member').map(({ key, value }) => [key, value])).map(clashText)
    const fresh = texts.filter((text) => !this.#toldClashes.has(text))
    for (const reason of fresh.slice(0, MAX_LOGGED_CLASHES))
      this.#logger.warn('members do not reach each other', { why: reason })
    this.#toldClashes = new Set(texts)
  }
}
