/**
 * The audit log as standard output, beside the broker's own log, which is on standard error: whatever collects the
 * output of containers and units collects it.
 */
import { fstatSync } from 'node:fs'
import { Socket } from 'node:net'
import type { Writable } from 'node:stream'
import type { AuditSink } from './audit-sink.ts'
import { jsonForTerminal } from '../../model/status-text.ts'

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
