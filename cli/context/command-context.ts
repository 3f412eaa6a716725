/** What every command gets, and the parts of command lines that several commands share. */
import { type Command, CommanderError, InvalidArgumentError, Option } from 'commander'
import { parseDnsLabel } from '../../model/model.ts'
import { nearName } from '../../model/values/values.ts'
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
  /** The environment of the process by default. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined
  /** The terminal to ask questions at. By default the terminal of the process, if there is one; null for none. */
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
  return choiceOption('-o, --output <format>', 'output format', OUTPUT_FORMATS, 'table' satisfies OutputFormat)
}

/** An option with a fixed list of values. The error message names flag and value, as for the other options. */
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

/** An option of the broker. `--approve no` lets a script always pass the flag. */
export function approveOption(): Option {
  const text = 'each join waits for "sealane cluster accept": yes (also if no value is given) or no'
  return choiceOption('--approve [yes|no]', text, ['yes', 'no'])
}

/** A duration option, parsed to milliseconds. Help shows the default as a duration. */
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

/** May be given several times, to listen on each address. The default applies only if the flag is not given. */
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
  return new Option('--log-level <level>', `least severe level to log: ${LOG_LEVELS.join(', ')}`)
    .argParser(parsed(parseLogLevel))
    .default('info')
}

function parseLogLevel(text: string): LogThreshold {
  const level = LOG_LEVELS.find((candidate) => candidate === text)
  if (level === undefined) throw new UserError(`--log-level ${quoted(text)}: expected ${LOG_LEVELS.join(', ')}`)
  return level
}

/** A value for a message: quoted, with control characters escaped, and cut to 100 characters. */
export function quoted(text: string): string {
  return JSON.stringify(text.slice(0, 100))
}

/** `about` is the help text. By default it is that of the commands that also work while no broker runs. */
export function stateOption(about = 'state directory of a broker on this machine, running or stopped'): Option {
  return new Option('--state <directory>', about).default('/var/lib/sealane/broker')
}

export function clustersetOption(): Option {
  const text = "the clusterset, if the broker serves several (default: the broker's own)"
  return new Option('--clusterset <name>', text).argParser(parsed((name) => parseDnsLabel(name, '--clusterset')))
}

/** Wraps a parser so that commander names the flag in usage errors. */
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

// Turns the errors that commander throws into exit codes: help and version are no failure, wrong usage is 2.

/**
 * Runs the command that the words name. `help NAME` is the same as `NAME --help`. Throws UserError with exit code 2 for
 * wrong usage. Errors of the command itself pass through.
 */
export async function parseWith(program: Command, args: readonly string[]): Promise<void> {
  const words = args[0] === 'help' ? [...args.slice(1), '--help'] : args
  checkCommandNames(program, words)
  try {
    await program.parseAsync([...words], { from: 'user' })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
  }
}

const HELP_FLAGS: readonly string[] = ['-h', '--help']

/**
 * Checks the names of commands before commander does, because it prints the help of the last command that exists when
 * an unknown one is followed by `--help`. Throws UserError with exit code 2.
 */
function checkCommandNames(program: Command, words: readonly string[]): void {
  let command = program
  for (const word of words) {
    if (HELP_FLAGS.includes(word)) continue
    if (command.commands.length === 0 || word.startsWith('-')) return
    const next = command.commands.find((one) => one.name() === word)
    if (next === undefined) {
      throw new UserError(unknownCommand(word, command), { exitCode: 2, hint: `see: ${fullName(command)} --help` })
    }
    command = next
  }
}

function unknownCommand(word: string, command: Command): string {
  const names = commandNames(command)
  const meant = nearName(word, names)
  const hint = meant === undefined ? '' : ` (did you mean ${meant}?)`
  return `unknown command '${word}'${hint}: expected ${names.join(', ')}`
}

/** The names of the commands that the help shows. */
function commandNames(command: Command): readonly string[] {
  return command
    .createHelp()
    .visibleCommands(command)
    .map((one) => one.name())
}

/**
 * Makes commander throw instead of ending the process: CommanderError after help, UserError with this exit code for
 * wrong usage.
 */
export function throwingUsageErrors(command: Command, exitCode: 2 | 3 = 2): Command {
  return command.exitOverride((error) => {
    if (error.exitCode === 0) throw error
    throw new UserError(usageMessage(error, command), { exitCode, hint: `see: ${fullName(command)} --help` })
  })
}

function usageMessage({ code, message }: CommanderError, command: Command): string {
  switch (code) {
    case 'commander.help':
      return `${[...pathOf(command), 'expected a command'].join(': ')}: ${commandNames(command).join(', ')}`
    case 'commander.unknownCommand':
      return unknownCommand(command.args[0] ?? '', command)
    case 'commander.invalidArgument':
      // The project's own parsers already name flag and value.
      return message.replace(/^error: .*? is invalid(?: for argument '[^']*')?\. /s, '')
    default:
      return message.replace(/^error: /, '')
  }
}

/** `sealane token create` */
function fullName(command: Command): string {
  return command.parent === null ? command.name() : `${fullName(command.parent)} ${command.name()}`
}

/**
 * The path of the command below the program, such as `['token']`. Messages already begin with the name of the program.
 */
function pathOf(command: Command): readonly string[] {
  return command.parent === null ? [] : [...pathOf(command.parent), command.name()]
}
