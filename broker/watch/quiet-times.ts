/**
 * Between which revisions nothing has happened that a view shows: its streams are not woken for that, and one that
 * stands before such a time may as well stand behind it.
 */
import type { RecordLog } from '../log/record-log.ts'

/** Changes that are looked at before streams are woken: with more there is hardly nothing for them. */
const MOST = 512

export class QuietTimes {
  /** Nothing in (from, to] is shown. */
  #from = 0
  #to = 0
  /** Streams have been woken for whatever is shown up to here. */
  #checked = 0

  /** Where a stream that stands at `revision` may as well stand. */
  skip(revision: number): number {
    return revision >= this.#from && revision < this.#to ? this.#to : revision
  }

  /** Nothing between them is shown. */
  note(from: number, to: number): void {
    if (from <= this.#to && from >= this.#from) this.#to = Math.max(this.#to, to)
    else [this.#from, this.#to] = [from, to]
  }

  /** Whether anything has happened since the last time that is shown. */
  hasNews(log: Pick<RecordLog, 'recordsAfter' | 'revision'>, shows: (key: string) => boolean): boolean {
    const from = this.#checked
    const changes = log.recordsAfter(from, MOST)
    this.#checked = log.revision
    if (changes.length === MOST || changes.some(({ key }) => shows(key))) return true
    this.note(from, log.revision)
    return false
  }
}
