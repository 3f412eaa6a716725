/**
 * Writes down who has a stream open, a moment later and together: after a restart all members come at once. In parts,
 * so that what others wait for comes in between.
 */
import type { ClusterId } from '../../model/ids.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import type { RecordLog, Transaction } from '../log/record-log.ts'
import { noteContact, noteSeen } from './contact-rows.ts'

/** Members whose contact is written down in one transaction. */
const NOTED_AT_ONCE = 100
const NOTE_SOON_MS = 1000

export interface ContactNotesDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
}

export interface ContactNotesInit {
  /** It has a stream at this broker. */
  readonly isHere: (cluster: ClusterId) => boolean
  /** It has one at another broker of the same store, which notes it. */
  readonly isElsewhere: (cluster: ClusterId) => boolean
}

export class ContactNotes {
  readonly #deps: ContactNotesDeps
  readonly #init: ContactNotesInit
  /** Members whose streams have begun or ended, and when. */
  readonly #seen = new Map<ClusterId, number>()
  #cancel: (() => void) | undefined

  constructor(deps: ContactNotesDeps, init: ContactNotesInit) {
    this.#deps = deps
    this.#init = init
  }

  /** A stream of it has begun or ended. */
  seen(cluster: ClusterId): void {
    const { clock, logger } = this.#deps
    this.#seen.set(cluster, clock.now())
    const failed = (error: unknown): void => logger.debug('last seen not noted', { why: String(error) })
    this.#cancel ??= clock.setTimer(NOTE_SOON_MS, () => void this.#noteSeen().catch(failed))
  }

  /** Of all members, for processes that read the store beside the broker. Throws StateError. */
  async noteAll(members: readonly string[]): Promise<void> {
    const { clock } = this.#deps
    const { isHere, isElsewhere } = this.#init
    await this.#noteSeen()
    await this.#inParts(members, (tx, member) => {
      const cluster = member as ClusterId
      if (isHere(cluster) || !isElsewhere(cluster)) noteContact(tx, cluster, isHere(cluster), clock.now())
    })
  }

  close(): void {
    this.#cancel?.()
  }

  async #noteSeen(): Promise<void> {
    this.#cancel?.()
    this.#cancel = undefined
    const seen = [...this.#seen]
    this.#seen.clear()
    const { isHere, isElsewhere } = this.#init
    const isConnected = (cluster: ClusterId): boolean => isHere(cluster) || isElsewhere(cluster)
    await this.#inParts(seen, (tx, [cluster, atMs]) => noteSeen(tx, cluster, isConnected(cluster), atMs))
  }

  async #inParts<T>(all: readonly T[], write: (tx: Transaction, one: T) => void): Promise<void> {
    for (let i = 0; i < all.length; i += NOTED_AT_ONCE) {
      await this.#deps.log.transact((tx) => {
        for (const one of all.slice(i, i + NOTED_AT_ONCE)) write(tx, one)
      })
    }
  }
}
