/** Asks the user to confirm a change at the terminal, and refuses the change if there is no terminal. */
import { UserError } from '../../runtime/runtime.ts'
import { type Terminal, processTerminal, lineFromTerminal } from './terminal.ts'
import type { CommandContext } from './command-context.ts'

export interface ConfirmInit {
  /** Describes the change, such as `Leave`. */
  readonly what: string
  /** The flag --yes was given. */
  readonly yes: boolean
  /** The command to type if there is no terminal, for the hint. */
  readonly command: string
}

/** The terminal that this command can ask at. Undefined if there is none. */
export function terminalOf({ terminal }: CommandContext): Terminal | undefined {
  return terminal === undefined ? processTerminal() : (terminal ?? undefined)
}

/** Throws UserError: with exit code 2 if there is no terminal and no --yes, with 1 if the answer is no. */
export async function confirm({ what, yes, command }: ConfirmInit, context: CommandContext): Promise<void> {
  if (yes) return
  const terminal = terminalOf(context)
  if (terminal === undefined) {
    throw new UserError('there is no terminal to ask for confirmation: expected --yes', {
      exitCode: 2,
      hint: `run: ${command}`,
    })
  }
  const said = await lineFromTerminal(`${what}? Type yes: `, context.signal, terminal)
  if (said.trim().toLowerCase() === 'yes') return
  throw new UserError('nothing was changed')
}
