/** What every command gets, and the pieces of command lines that several share. */
import { type Command, CommanderError, InvalidArgumentError, Option } from 'commander'
import { parseDnsLabel } from '../../model/model.ts'
import {
  type DurationRange,
  UserError,
  formatDuration,
  messageOf,
  parseDuration,
  parseHostPort,
} from '../../runtime/runtime.ts'
import { LOG_LEVELS, type LogThreshold } from '../../runtime/logging/logging.ts'
import { OUTPUT_FORMATS, type Output, type OutputFormat } from './output.ts'
import type { Terminal } from './terminal.ts'

export interface CommandContext {
  readonly signal: AbortSignal
  readonly output: Output
  /** The process's by default. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined
  /** Whom questions are put to: the process's terminal by default, if there is one; null: nobody. */
  readonly terminal?: Terminal | null | undefined
}

/** A subcommand that reports errors like the program does and ends its help with an example. */
export function subcommand(parent: Command, name: string, description: string, example: string): Command {
  const command = parent.command(name).description(description).addHelpText('after', `\nExample:\n  ${example}`)
  return throwingUsageErrors(command).helpCommand(false)
}

export function siteOption(): Option {
  return new Option('--site <file>', 'the site file').default('site.yaml')
}

export function outputOption(): Option {
  return choiceOption('-o, --output <format>', 'how to print', OUTPUT_FORMATS, 'table' satisfies OutputFormat)
}

/** A flag with a few values; the message names flag and value, as those of the other flags do. */
export function choiceOption(
  flags: string,
  description: string,
  choices: readonly string[],
  standard?: string,
): Option {
  const [name = ''] = flags.split(' ').filter((word) => word.startsWith('--'))
  const option = new Option(flags, description).choices(choices).argParser(
    parsed((text) => {
      if (choices.includes(text)) return text
      throw new UserError(`${name} ${quoted(text)}: expected ${choices.join(', ')}`)
    }),
  )
  return standard === undefined ? option : option.default(standard)
}

/** Of the broker; `--approve no` is for a script that says either. */
export function approveOption(): Option {
  const text = 'who joins waits until "sealane cluster accept" lets it in: yes (as the flag alone) or no'
  return choiceOption('--approve [yes|no]', text, ['yes', 'no'])
}

/** A duration flag in milliseconds; help shows the default as people write it. */
export function durationOption(
  flag: string,
  description: string,
  defaultMs: number,
  range: DurationRange = {},
): Option {
  return new Option(`${flag} <duration>`, description)
    .argParser(parsed((text) => parseDuration(text, flag, range)))
    .default(defaultMs, formatDuration(defaultMs))
}

/** Given several times, it listens on each; the standard place counts only where none is given. */
export function statusListenOption(description: string, standard: string): Option {
  const standards = [standard]
  const parse = parsed((text) => {
    parseHostPort(text.startsWith(':') ? `127.0.0.1${text}` : text, '--status-listen', true)
    return text
  })
  return new Option('--status-listen <host:port>', description)
    .argParser((text, before: readonly string[]) => [...(before === standards ? [] : before), parse(text)])
    .default(standards, standard)
}

export function logLevelOption(): Option {
  return new Option('--log-level <level>', LOG_LEVELS.join(', ')).argParser(parsed(parseLogLevel)).default('info')
}

function parseLogLevel(text: string): LogThreshold {
  const level = LOG_LEVELS.find((candidate) => candidate === text)
  if (level === undefined) throw new UserError(`--log-level ${quoted(text)}: expected ${LOG_LEVELS.join(', ')}`)
  return level
}

/** A value in a message: quoted, control characters escaped, not longer than a line. */
export function quoted(text: string): string {
  return JSON.stringify(text.slice(0, 100))
}

export function stateOption(): Option {
  return new Option('--state <directory>', "the broker's state directory").default('/var/lib/sealane/broker')
}

export function clustersetOption(): Option {
  const text = "of several clustersets at one broker: which one (default: the broker's own)"
  return new Option('--clusterset <name>', text).argParser(parsed((name) => parseDnsLabel(name, '--clusterset')))
}

/** Lets a parser of ours speak in commander's words: usage errors name the flag. */
export function parsed<T>(parse: (text: string) => T): (text: string) => T {
  return (text) => {
    try {
      return parse(text)
    } catch (error) {
      throw new InvalidArgumentError(messageOf(error))
    }
  }
}

export function collect<T>(
  parse: (text: string) => T,
): (text: string, before: readonly T[] | undefined) => readonly T[] {
  return (text, before = []) => [...before, parsed(parse)(text)]
}

// Turns what commander throws into exit codes: help and version are no failure, wrong usage is 2.

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
