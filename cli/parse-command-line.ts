/** Turns what commander throws into exit codes: help and version are no failure, wrong usage is 2. */
import { type Command, CommanderError } from 'commander'
import { UserError } from '../runtime/user-error.ts'

const NO_FAILURE = new Set(['commander.helpDisplayed', 'commander.help', 'commander.version'])

/** Throws UserError with exit code 2 for wrong usage; whatever the command throws passes through. */
export async function parseWith(program: Command, args: readonly string[]): Promise<void> {
  try {
    await program.parseAsync([...args], { from: 'user' })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    if (NO_FAILURE.has(error.code) && error.exitCode === 0) return
    const message = error.code === 'commander.help' ? 'a command is missing' : error.message.replace(/^error: /, '')
    throw new UserError(message, { exitCode: 2, hint: 'see: sealane --help' })
  }
}
