/** Asks the user a question at the terminal. */
import { createInterface } from 'node:readline/promises'
import { forTerminal } from '../../model/model.ts'
import { UserError } from '../../runtime/runtime.ts'

export interface Question {
  /** A sentence that says why the question is asked. */
  readonly why: string
  /** The values that hold if the user gives no answer. Empty if there is no suggestion. */
  readonly suggestion: readonly string[]
}

export interface Terminal {
  readonly input: NodeJS.ReadableStream
  readonly output: NodeJS.WritableStream & { readonly isTTY?: boolean }
  /** Handles Ctrl-C: while a question is open, the terminal delivers the key and the kernel sends no signal. */
  readonly interrupt: () => void
}

const PROCESS: Terminal = {
  input: process.stdin,
  // Stdout is reserved for the output of the command.
  output: process.stderr,
  interrupt: () => void process.kill(process.pid, 'SIGINT'),
}

/** The terminal of the process. Undefined if its stdin or stderr is not a terminal. */
export function processTerminal(): Terminal | undefined {
  return process.stdin.isTTY && process.stderr.isTTY ? PROCESS : undefined
}

/**
 * Returns the answer, or the suggestion if the answer is empty. Rejects with an AbortError after the signal. Throws
 * UserError if the input ends.
 */
export async function askAtTerminal(
  { why, suggestion }: Question,
  signal: AbortSignal,
  terminal: Terminal = PROCESS,
): Promise<readonly string[]> {
  const offer = suggestion.length === 0 ? '' : ` [${suggestion.join(', ')}]`
  const unanswered = (cause: unknown): UserError =>
    new UserError(`${why}, and the question was not answered`, {
      hint: 'give the answer as a flag; see: sealane join --help',
      cause,
    })
  const said = await lineFromTerminal(`${why}.\nWhich${offer}? `, signal, terminal, unanswered)
  const words = said.split(/[\s,]+/).filter((word) => word !== '')
  return words.length === 0 ? suggestion : words
}

/** Returns one line of input. Rejects with an AbortError after the signal, and with `unanswered` if the input ends. */
export async function lineFromTerminal(
  question: string,
  signal: AbortSignal,
  { input, output, interrupt }: Terminal,
  unanswered: (cause: unknown) => UserError = (cause) =>
    new UserError('the question was not answered: nothing was changed', { cause }),
): Promise<string> {
  const terminal = createInterface({ input, output, terminal: output.isTTY === true })
  terminal.on('SIGINT', interrupt)
  // If the input ends, the question never settles and nothing else keeps the process alive.
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
    // Closing restores the state of the terminal.
    terminal.close()
  }
}
