/** Turns what commander throws into exit codes: help and version are no failure, wrong usage is 2. */
import { type Command, CommanderError } from 'commander'
import { UserError } from '../runtime/user-error.ts'

/** Throws UserError with exit code 2 for wrong usage; whatever the command throws passes through. */
export async function parseWith(program: Command, args: readonly string[]): Promise<void> {
  try {
    await program.parseAsync([...args], { from: 'user' })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
  }
}

/**
 * Makes commander throw instead of ending the process: CommanderError after help, UserError for wrong usage, with this
 * exit code.
 */
export function throwingUsageErrors(command: Command, exitCode: 2 | 3 = 2): Command {
  return command.exitOverride((error) => {
    if (error.exitCode === 0) throw error
    throw new UserError(usageMessage(error, command), { exitCode, hint: `see: ${fullName(command)} --help` })
  })
}

function usageMessage({ code, message }: CommanderError, command: Command): string {
  const expected = command
    .createHelp()
    .visibleCommands(command)
    .map((one) => one.name())
    .join(', ')
  const [first = ''] = message.split('\n')
  switch (code) {
    case 'commander.help':
      return `${[...pathOf(command), 'expected a command'].join(': ')}: ${expected}`
    case 'commander.unknownCommand':
      return `${first.replace('error: ', '')}: expected ${expected}`
    case 'commander.invalidArgument':
      // Our parsers name the flag and the value themselves.
      return message.replace(/^error: .*? is invalid(?: for argument '[^']*')?\. /s, '')
    default:
      return message.replace(/^error: /, '')
  }
}

/** `sealane token create` */
function fullName(command: Command): string {
  return command.parent === null ? command.name() : `${fullName(command.parent)} ${command.name()}`
}

/** `['token']`: every message begins with the program's name already. */
function pathOf(command: Command): readonly string[] {
  return command.parent === null ? [] : [...pathOf(command.parent), command.name()]
}
