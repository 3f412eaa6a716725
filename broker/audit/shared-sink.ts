/** One audit log for several clustersets: their lines go out one batch after the other, and only its owner closes it. */
import { SerialQueue } from '../../reconcile/serial-queue.ts'
import type { AuditSink } from './audit-sink.ts'

export class SharedSink implements AuditSink {
  readonly #sink: AuditSink
  readonly #queue = new SerialQueue()

  constructor(sink: AuditSink) {
    this.#sink = sink
  }

  /** For one that is not the owner. */
  borrowed(): AuditSink {
    return { write: (lines) => this.write(lines), close: () => Promise.resolve() }
  }

  write(lines: readonly string[]): Promise<void> {
    return this.#queue.run(() => this.#sink.write(lines))
  }

  reopen(): Promise<void> {
    return this.#queue.run(() => this.#sink.reopen?.() ?? Promise.resolve())
  }

  close(): Promise<void> {
    return this.#sink.close()
  }
}
