/**
 * Drives nftables through one long-lived `nft -i`, for frequent small changes. `nft -f -` must start for each change,
 * and if elements were deleted, closing its socket waits for an RCU grace period (10 to 20 ms), although the change
 * took effect long before. With an open session the same change takes about 1 ms.
 *
 * `nft -i` takes one line as one transaction and prints nothing on success. So each line is followed by one that cannot
 * be parsed: the error about that one on standard error means that the line before it is done. Whatever the session
 * refuses is also tried with `nft -f -`, which decides and reports the error.
 */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { type Clock, SerialQueue, SystemClock } from '../../reconcile/reconcile.ts'
import { KernelError, toolEnvironment } from '../kernel.ts'
import { formatStatement } from './nft-text.ts'
import { INTERACTIVE, NftCommand, type NftCommandInit } from './nft-command.ts'
import type { NftFamily, NftStatement } from './nft-transaction.ts'

export type NftSessionInit = NftCommandInit

/** Longer transactions go to `nft -f -`, whose start no longer matters for them. */
const MAX_LINE_LENGTH = 16 * 1024
const MAX_ITEMS = 400
/** The tool remembers every line it has read, so a session ends after this many. */
const MAX_LINES = 2000
const ANSWER_TIMEOUT_MS = 5000

export class NftSession extends NftCommand {
  readonly #clock: Clock
  #process: Conversation | undefined
  readonly #queue = new SerialQueue()

  constructor(init: NftSessionInit = {}) {
    super(init)
    this.#clock = init.clock ?? new SystemClock()
  }

  override run(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void> {
    return this.#queue.run(() =>
      this.own(async () => {
        if (signal?.aborted === true) throw new KernelError('EINTR', 'nft -i', 'stopped before it began')
        if (isShort(statements)) {
          const line = oneLine(statements, this.family)
          if (line === '' || (line.length <= MAX_LINE_LENGTH && (await this.#say(line)))) return
        }
        await super.run(statements, signal)
      }),
    )
  }

  /** Ends the process. The next run() starts another one. Without close(), nft ends together with this process. */
  close(): void {
    this.#process?.end()
    this.#process = undefined
  }

  /** Returns true if the line took effect. Returns false also if the tool cannot run a session. */
  async #say(line: string): Promise<boolean> {
    if (this.#process === undefined || this.#process.ended || this.#process.lines >= MAX_LINES) {
      this.close()
      this.#process = new Conversation(this.#clock)
    }
    const answer = await this.#process.say(line)
    if (answer !== '') this.close()
    return answer === ''
  }
}

/** Counts items before anything is formatted, so that a transaction of 100,000 elements is not formatted twice. */
function isShort(statements: readonly NftStatement[]): boolean {
  let items = 0
  for (const statement of statements) items += 'elements' in statement ? statement.elements.length : 1
  return items <= MAX_ITEMS
}

/** Returns all statements on one line, '' if there is nothing to do. */
function oneLine(statements: readonly NftStatement[], family: NftFamily): string {
  return statements
    .map((statement) => formatStatement(statement, family).replaceAll('\n', ' '))
    .filter((text) => text !== '')
    .join('; ')
}

class Conversation {
  lines = 0
  ended = false
  readonly #clock: Clock
  readonly #child: ChildProcessWithoutNullStreams
  #heard = ''
  #onHeard: (() => void) | undefined

  constructor(clock: Clock) {
    this.#clock = clock
    const env = { ...toolEnvironment(), ...INTERACTIVE }
    this.#child = spawn('nft', ['-i'], { env, stdio: 'pipe' })
    for (const stream of [this.#child.stdin, this.#child.stdout, this.#child.stderr]) {
      stream.on('error', () => undefined)
    }
    this.#child.stdout.resume()
    this.#child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#heard += text
      this.#onHeard?.()
    })
    const onEnd = (): void => {
      this.ended = true
      this.#onHeard?.()
    }
    this.#child.on('error', onEnd).on('close', onEnd)
    this.#hold(false)
  }

  /** Returns '' if the line took effect, else the error of the tool, or why there is no answer. */
  say(line: string): Promise<string> {
    this.lines += 1
    const marker = `sealane-done-${this.lines}`
    this.#heard = ''
    this.#hold(true)
    return new Promise((resolve) => {
      const finish = (answer: string): void => {
        stopTimer()
        this.#onHeard = undefined
        this.#hold(false)
        resolve(answer)
      }
      const stopTimer = this.#clock.setTimer(ANSWER_TIMEOUT_MS, () => finish('no answer in time'))
      this.#onHeard = () => {
        const end = this.#heard.indexOf(`\n${marker}\n`)
        if (end >= 0) finish(complaintBefore(this.#heard.slice(0, end)))
        else if (this.ended) finish('nft has ended')
      }
      this.#child.stdin.write(`${line}\n${marker}\n`)
    })
  }

  end(): void {
    this.ended = true
    this.#child.stdin.end()
    this.#child.kill()
  }

  /** Lets the session keep this process alive only while a caller waits for an answer. */
  #hold(wait: boolean): void {
    const parts = [this.#child, this.#child.stdin, this.#child.stdout, this.#child.stderr] as unknown as {
      ref?(): void
      unref?(): void
    }[]
    for (const part of parts) {
      if (wait) part.ref?.()
      else part.unref?.()
    }
  }
}

/**
 * Returns the error printed before the error about the marker, whose first line is the last line here. The text may
 * begin with a row of carets left from an earlier error.
 */
function complaintBefore(heard: string): string {
  const text = heard.split('\n').slice(0, -1).join('\n').trim()
  return /\berror\b/i.test(text) ? text : ''
}
