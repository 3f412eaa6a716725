/** Changes of one Publish stream that wait to be written, in groups small enough for members to take turns. */
import type { MemberChange } from './member-changes.ts'

/** Changes that may wait for the disk, and their bytes on the wire; more, and the member is made to wait. */
const MAX_WAITING = 1024
const MAX_WAITING_BYTES = 2 * 1024 * 1024
/** Changes written in one transaction, and their bytes: keeps the steps short, so that members take turns. */
const MAX_GROUP = 64
const MAX_GROUP_BYTES = 64 * 1024

export interface ChangeGroup {
  readonly changes: readonly MemberChange[]
  /** On the wire. */
  readonly bytes: number
}

interface Waiting {
  readonly change: MemberChange
  readonly bytes: number
}

export class WaitingChanges {
  #waiting: Waiting[] = []
  #bytes = 0

  get isEmpty(): boolean {
    return this.#waiting.length === 0
  }

  /** The member has to wait. */
  get isFull(): boolean {
    return this.#waiting.length >= MAX_WAITING || this.#bytes >= MAX_WAITING_BYTES
  }

  /** `bytes`: on the wire. */
  add(change: MemberChange, bytes: number): void {
    this.#waiting.push({ change, bytes })
    this.#bytes += bytes
  }

  /** The first of those that wait, at most `most` and at least one of any. They wait until done() says otherwise. */
  nextGroup(most = MAX_GROUP): ChangeGroup {
    let bytes = 0
    const size = Math.min(most, MAX_GROUP)
    const end = this.#waiting.findIndex((one, i) => i >= size || (bytes += one.bytes) > MAX_GROUP_BYTES)
    const group = this.#waiting.slice(0, end < 0 ? this.#waiting.length : Math.max(1, end))
    return { changes: group.map(({ change }) => change), bytes: group.reduce((sum, one) => sum + one.bytes, 0) }
  }

  /** Takes the group that nextGroup() gave. */
  done({ changes, bytes }: ChangeGroup): void {
    this.#waiting.splice(0, changes.length)
    this.#bytes -= bytes
  }

  clear(): void {
    this.#waiting = []
    this.#bytes = 0
  }
}
