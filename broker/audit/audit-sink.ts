/** Destinations of the audit log: a file (audit-file.ts), standard output, an array in tests. */
import { fstatSync } from 'node:fs'
import { Socket } from 'node:net'
import type { Writable } from 'node:stream'
import { jsonForTerminal } from '../../model/model.ts'
import { SerialQueue } from '../../reconcile/reconcile.ts'

export interface AuditSink {
  /** Takes whole lines. Resolves when they are written. If it rejects, all of them may be passed again. */
  write(lines: readonly string[]): Promise<void>
  /** Opens the name again, which may refer to another file by now. Not called during write(). */
  reopen?(): Promise<void>
  /** Does not wait for a reader. */
  close(): Promise<void>
}

// The audit log on standard output. The broker's own log is on standard error, so collectors of container and unit
// output get both.

const STDOUT = 1

/**
 * A reader that stalls only delays lines, not the rest of the broker: a pipe or a socket takes as much as it can, and
 * the rest waits.
 */
export class AuditOutput implements AuditSink {
  readonly #stream: Writable

  constructor(stream: Writable = standardOutput()) {
    this.#stream = stream
    // Each write gets its own error. Without a listener, the process would end at the first one.
    stream.on('error', () => undefined)
  }

  async write(lines: readonly string[]): Promise<void> {
    // Lines are written one by one: a pipe takes a line in one piece, even if other processes write to it.
    for (const line of lines) await this.#write(line)
  }

  close(): Promise<void> {
    // Otherwise, data that waits for a reader would keep the process from ending.
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

/**
 * process.stdout cannot be destroyed. Writes to files and terminals do not wait for a reader, so it is used for these.
 */
function standardOutput(): Writable {
  const found = fstatSync(STDOUT)
  if (!found.isFIFO() && !found.isSocket()) return process.stdout
  return new Socket({ fd: STDOUT, readable: false, writable: true })
}

/**
 * An audit log for several clustersets: their batches are written one after the other, and only the owner closes it.
 */
export class SharedSink implements AuditSink {
  readonly #sink: AuditSink
  readonly #queue = new SerialQueue()

  constructor(sink: AuditSink) {
    this.#sink = sink
  }

  /** For a user of the sink that does not own it. */
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
