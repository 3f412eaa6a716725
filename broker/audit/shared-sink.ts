/** One audit log for several clustersets: their lines go out one batch after the other, and only its owner closes it. */
import type { AuditSink } from './audit-sink.ts'

export class SharedSink implements AuditSink {
  readonly #sink: AuditSink
  #last: Promise<void> = Promise.resolve()

  constructor(sink: AuditSink) {
    this.#sink = sink
  }

  /** For one that is not the owner. */
  borrowed(): AuditSink {
    return { write: (lines) => this.write(lines), close: () => Promise.resolve() }
  }

  write(lines: readonly string[]): Promise<void> {
    return this.#next(() => this.#sink.write(lines))
  }

  reopen(): Promise<void> {
    return this.#next(() => this.#sink.reopen?.() ?? Promise.resolve())
  }

  close(): Promise<void> {
    return this.#sink.close()
  }

  /** Whether the one before has worked or not. */
  #next(work: () => Promise<void>): Promise<void> {
    const done = this.#last.then(work)
    this.#last = done.catch(() => undefined)
    return done
  }
}
