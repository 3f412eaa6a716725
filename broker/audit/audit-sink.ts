/** Where lines of the audit log go: a file (audit-file.ts), standard output, an array in tests. */
import { fstatSync } from 'node:fs'
import { Socket } from 'node:net'
import type { Writable } from 'node:stream'
import { jsonForTerminal } from '../../model/model.ts'
import { SerialQueue } from '../../reconcile/reconcile.ts'

export interface AuditSink {
  /** Takes whole lines. Resolves when they are out; rejects when they are not, and then all of them may come again. */
  write(lines: readonly string[]): Promise<void>
  /** What is behind the name may be another one by now. Not called while write() is under way. */
  reopen?(): Promise<void>
  /** Does not wait for a reader. */
  close(): Promise<void>
}

// The audit log as standard output, beside the broker's own log, which is on standard error: whatever collects the
// output of containers and units collects it.

const STDOUT = 1

/**
 * A reader that stands still stops lines, and nothing else of the broker: a pipe or a socket is written to as far as it
 * takes, and the rest waits.
 */
export class AuditOutput implements AuditSink {
  readonly #stream: Writable

  constructor(stream: Writable = standardOutput()) {
    this.#stream = stream
    // Each write hears of its own failure; without a listener the process would end with the first.
    stream.on('error', () => undefined)
  }

  async write(lines: readonly string[]): Promise<void> {
    // A line at a time: that much goes into a pipe in one piece, also where others write into it.
    for (const line of lines) await this.#write(line)
  }

  close(): Promise<void> {
    // Otherwise what waits for a reader keeps the process from ending.
    if (this.#stream !== process.stdout) this.#stream.destroy()
    return Promise.resolve()
  }

  #write(line: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#stream.write(jsonForTerminal(line), (error) => {
        if (error) reject(new Error(`standard output: ${error.message}`, { cause: error }))
        else resolve()
      })
    })
  }
}

/** process.stdout cannot be given up. Files and terminals are written to at once, so there it is as good. */
function standardOutput(): Writable {
  const found = fstatSync(STDOUT)
  if (!found.isFIFO() && !found.isSocket()) return process.stdout
  return new Socket({ fd: STDOUT, readable: false, writable: true })
}

/** One audit log for several clustersets: their lines go out one batch after the other, and only its owner closes it. */
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
