/** "Are you sure": asked where somebody can answer, and refused where nobody can. */
import { UserError } from '../../runtime/runtime.ts'
import { type Terminal, processTerminal, lineFromTerminal } from './terminal.ts'
import type { CommandContext } from './command-context.ts'

export interface ConfirmInit {
  /** `Leave` */
  readonly what: string
  /** --yes. */
  readonly yes: boolean
  /** The same command, to be typed where there is nobody to ask. */
  readonly command: string
}

/** Whom this command can ask; undefined: nobody. */
export function terminalOf({ terminal }: CommandContext): Terminal | undefined {
  return terminal === undefined ? processTerminal() : (terminal ?? undefined)
}

/** Throws UserError: exit code 2 where there is no terminal and no --yes, 1 where the answer is no. */
export async function confirm({ what, yes, command }: ConfirmInit, context: CommandContext): Promise<void> {
  if (yes) return
  const terminal = terminalOf(context)
  if (terminal === undefined) {
    throw new UserError('there is no terminal to ask at: expected --yes', { exitCode: 2, hint: `type: ${command}` })
  }
  const said = await lineFromTerminal(`${what}? Type yes: `, context.signal, terminal)
  if (said.trim().toLowerCase() === 'yes') return
  throw new UserError('nothing was changed')
}
