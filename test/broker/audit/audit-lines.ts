/** An audit log in memory, with functions that read it in tests. */
import type { AuditSink } from '../../../broker/audit/audit-sink.ts'
import type { AuditValue } from '../../../broker/store/audit-event.ts'

/** A line in the format of broker/audit/audit-line.ts. */
export interface AuditLine {
  readonly v: number
  readonly time: string
  readonly id: string
  readonly result: string
  readonly reason?: string
  readonly who: Readonly<Record<string, AuditValue>> & { readonly kind: string }
  readonly what: {
    readonly act: string
    readonly subject?: string
    readonly details?: Readonly<Record<string, AuditValue>>
  }
  readonly ms?: number
  readonly cut?: true
}

/** Returns every line of a text. Throws when a line is not JSON. */
export function readLines(text: string): AuditLine[] {
  return text
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as AuditLine)
}

/** Returns `act result reason subject`, without the parts that the line does not have. */
export function shortLine({ what: { act, subject }, result, reason }: AuditLine): string {
  return [act, result, reason, subject].filter((part) => part !== undefined).join(' ')
}

/** An audit sink that keeps lines in memory, and that a test can make fail or block. */
export class MemorySink implements AuditSink {
  text = ''
  failure: Error | undefined
  /** Ends the write that was blocked last; undefined before the first one. */
  release: (() => void) | undefined
  #holds = false
  reopened = 0
  closed = false

  async write(lines: readonly string[]): Promise<void> {
    if (this.#holds) await new Promise<void>((resolve) => (this.release = resolve))
    if (this.failure !== undefined) throw this.failure
    this.text += lines.join('')
  }

  /** Blocks all writes until letGo() is called. */
  hold(): void {
    this.#holds = true
  }

  letGo(): void {
    this.#holds = false
    this.release?.()
  }

  reopen(): Promise<void> {
    this.reopened += 1
    return Promise.resolve()
  }

  close(): Promise<void> {
    this.closed = true
    return Promise.resolve()
  }

  lines(): AuditLine[] {
    return readLines(this.text)
  }

  short(): string[] {
    return this.lines().map(shortLine)
  }
}
