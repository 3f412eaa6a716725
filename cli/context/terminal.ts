/** A question to the person at the terminal. */
import { createInterface } from 'node:readline/promises'
import { forTerminal } from '../../model/model.ts'
import { UserError } from '../../runtime/runtime.ts'

export interface Question {
  /** A sentence. */
  readonly why: string
  /** What holds where nothing is said; empty when there is nothing to offer. */
  readonly suggestion: readonly string[]
}

export interface Terminal {
  readonly input: NodeJS.ReadableStream
  readonly output: NodeJS.WritableStream & { readonly isTTY?: boolean }
  /** Ctrl-C: while a question is open, the terminal sends the key and no signal. */
  readonly interrupt: () => void
}

const PROCESS: Terminal = {
  input: process.stdin,
  // The answers to commands go to stdout.
  output: process.stderr,
  interrupt: () => void process.kill(process.pid, 'SIGINT'),
}

/** The process's own, where somebody sits at it. */
export function processTerminal(): Terminal | undefined {
  return process.stdin.isTTY && process.stderr.isTTY ? PROCESS : undefined
}

/**
 * Gives what was said, or what was suggested where nothing was. Rejects with an AbortError after the signal; throws
 * UserError where the input ends.
 */
export async function askAtTerminal(
  { why, suggestion }: Question,
  signal: AbortSignal,
  terminal: Terminal = PROCESS,
): Promise<readonly string[]> {
  const offer = suggestion.length === 0 ? '' : ` [${suggestion.join(', ')}]`
  const unanswered = (cause: unknown): UserError =>
    new UserError(`${why}, and no answer came`, { hint: 'say it with a flag: sealane join --help', cause })
  const said = await lineFromTerminal(`${why}.\nWhich${offer}? `, signal, terminal, unanswered)
  const words = said.split(/[\s,]+/).filter((word) => word !== '')
  return words.length === 0 ? suggestion : words
}

/** One line of an answer. Rejects with an AbortError after the signal, and with `unanswered` where the input ends. */
export async function lineFromTerminal(
  question: string,
  signal: AbortSignal,
  { input, output, interrupt }: Terminal,
  unanswered: (cause: unknown) => UserError = (cause) =>
    new UserError('no answer came: nothing was changed', { cause }),
): Promise<string> {
  const terminal = createInterface({ input, output, terminal: output.isTTY === true })
  terminal.on('SIGINT', interrupt)
  // A question whose input ends is never answered, and keeps nothing alive that could say so.
  const ended = new Promise<never>((_resolve, reject) => {
    terminal.once('close', () => reject(new Error('the input has ended')))
  })
  ended.catch(() => undefined)
  try {
    return await Promise.race([terminal.question(forTerminal(question), { signal }), ended])
  } catch (error) {
    if (signal.aborted) throw error
    throw unanswered(error)
  } finally {
    // Gives the terminal back as it was.
    terminal.close()
  }
}
