/** An audit log in memory, as tests read it. */
import type { AuditSink } from '../../../broker/audit/audit-sink.ts'
import type { AuditValue } from '../../../broker/store/audit-event.ts'

/** A line of the format of broker/audit/audit-line.ts. */
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

/** Every line of a text. Throws where one is no JSON. */
export function readLines(text: string): AuditLine[] {
  return text
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as AuditLine)
}

/** `act result reason subject`, as short as it is. */
export function shortLine({ what: { act, subject }, result, reason }: AuditLine): string {
  return [act, result, reason, subject].filter((part) => part !== undefined).join(' ')
}

/** Keeps lines; fails, or never answers, for as long as it is told to. */
export class MemorySink implements AuditSink {
  text = ''
  failure: Error | undefined
  /** Writes that do not end before it is called. */
  release: (() => void) | undefined
  #holds = false
  reopened = 0
  closed = false

  async write(lines: readonly string[]): Promise<void> {
    if (this.#holds) await new Promise<void>((resolve) => (this.release = resolve))
    if (this.failure !== undefined) throw this.failure
    this.text += lines.join('')
  }

  /** From now on nothing is written before release(). */
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
