/**
 * Whether the owner of what this node writes can be the right one. A cache may be late: it still has the Node of
 * before, whose uid is nobody's any more. What is written for that owner is removed by the garbage collector at once,
 * and would be written again, and so on.
 */
import { owningNode } from '../../model/node-owner.ts'
import type { KubeObject } from '../../model/objects.ts'
import type { Clock } from '../../reconcile/clock.ts'

/** Without owner for so long. A cache is late by less, and who removes objects by hand gets them owned again. */
export const OWNER_DOUBT_MS = 60_000

export class StaleOwnerGuard {
  readonly #clock: Clock
  /** Owner with which an object was seen last, by its name. */
  readonly #seen = new Map<string, string>()
  #doubted: { readonly uid: string; readonly untilMs: number } | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * What to write: the object itself; or without owner, for a while, after it vanished while its owner, as far as is
   * known, did not. `present` is what there is of it now. To be asked at each round, with objects of one kind.
   */
  checked<T extends KubeObject>(wanted: T, present: T | undefined): T {
    const { name } = wanted.metadata
    const uid = ownerUid(wanted)
    const seen = this.#seen.get(name)
    if (present === undefined) this.#seen.delete(name)
    else this.#seen.set(name, ownerUid(present) ?? '')
    if (uid === undefined) return wanted
    const nowMs = this.#clock.monotonic()
    if (present === undefined && seen === uid) this.#doubted = { uid, untilMs: nowMs + OWNER_DOUBT_MS }
    if (this.#doubted?.uid !== uid || nowMs >= this.#doubted.untilMs) return wanted
    const { ownerReferences: _doubted, ...metadata } = wanted.metadata
    return { ...wanted, metadata }
  }
}

function ownerUid(object: KubeObject): string | undefined {
  const name = owningNode(object)
  return object.metadata.ownerReferences?.find((owner) => owner.name === name)?.uid
}
