/** A question to the person at the terminal. */
import { createInterface } from 'node:readline/promises'
import { UserError } from '../runtime/user-error.ts'
import type { Ask } from './discovery/discover.ts'

export interface Terminal {
  readonly input: NodeJS.ReadableStream
  readonly output: NodeJS.WritableStream & { readonly isTTY?: boolean }
  /** Ctrl-C: while a question stands, the terminal sends the key and no signal. */
  readonly interrupt: () => void
}

const PROCESS: Terminal = {
  input: process.stdin,
  // The answers to commands go to stdout.
  output: process.stderr,
  interrupt: () => void process.kill(process.pid, 'SIGINT'),
}

/**
 * Gives what was said, or what was suggested where nothing was. Rejects with an AbortError after the signal; throws
 * UserError where the input ends.
 */
export async function askAtTerminal(
  { why, suggestion }: Pick<Ask, 'why' | 'suggestion'>,
  signal: AbortSignal,
  terminal: Terminal = PROCESS,
): Promise<readonly string[]> {
  const offer = suggestion.length === 0 ? '' : ` [${suggestion.join(', ')}]`
  const said = await answerTo(`${why}.\nWhich${offer}? `, why, signal, terminal)
  const words = said.split(/[\s,]+/).filter((word) => word !== '')
  return words.length === 0 ? suggestion : words
}

/** True for `y` and `yes`, in any case; everything else is no. Rejects as askAtTerminal() does. */
export async function confirmAtTerminal(
  question: string,
  signal: AbortSignal,
  terminal: Terminal = PROCESS,
): Promise<boolean> {
  const said = await answerTo(`${question}? [y/N] `, `asked: ${question}`, signal, terminal)
  return /^\s*y(es)?\s*$/i.test(said)
}

async function answerTo(
  question: string,
  why: string,
  signal: AbortSignal,
  { input, output, interrupt }: Terminal,
): Promise<string> {
  const terminal = createInterface({ input, output, terminal: output.isTTY === true })
  terminal.on('SIGINT', interrupt)
  // A question whose input ends is never answered, and keeps nothing alive that could say so.
  const ended = new Promise<never>((_resolve, reject) => {
    terminal.once('close', () => reject(new Error('the input has ended')))
  })
  ended.catch(() => undefined)
  try {
    return await Promise.race([terminal.question(question, { signal }), ended])
  } catch (error) {
    if (signal.aborted) throw error
    throw new UserError(`${why}, and no answer came`, { hint: 'say it with a flag: sealane join --help', cause: error })
  } finally {
    // Gives the terminal back as it was.
    terminal.close()
  }
}
