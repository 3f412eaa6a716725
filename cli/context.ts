/** What every command gets, and the pieces of command lines that several share. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Command, InvalidArgumentError, Option } from 'commander'
import type { Output, OutputFormat } from './output.ts'
import { OUTPUT_FORMATS } from './output.ts'

export interface CommandContext {
  readonly signal: AbortSignal
  readonly output: Output
}

/** A subcommand that reports errors like the program does and ends its help with an example. */
export function subcommand(parent: Command, name: string, description: string, example: string): Command {
  return parent.command(name).description(description).exitOverride().addHelpText('after', `\nExample:\n  ${example}`)
}

export function siteOption(): Option {
  return new Option('--site <file>', 'the site file').default('site.yaml')
}

export function outputOption(): Option {
  return new Option('-o, --output <format>', 'how to print')
    .choices(OUTPUT_FORMATS)
    .default('table' satisfies OutputFormat)
}

export function stateOption(): Option {
  return new Option('--state <directory>', "the broker's state directory").default('/var/lib/sealane/broker')
}

/** Lets a parser of ours speak in commander's words: usage errors name the flag. */
export function parsed<T>(parse: (text: string) => T): (text: string) => T {
  return (text) => {
    try {
      return parse(text)
    } catch (error) {
      throw new InvalidArgumentError(error instanceof Error ? error.message : String(error))
    }
  }
}

export function collect<T>(
  parse: (text: string) => T,
): (text: string, before: readonly T[] | undefined) => readonly T[] {
  return (text, before = []) => [...before, parsed(parse)(text)]
}

/** From package.json, the one place that knows; one folder further up when this is the compiled copy in dist/. */
export function sealaneVersion(): string {
  const root = [join(import.meta.dirname, '..'), join(import.meta.dirname, '..', '..')]
  const file = root.map((folder) => join(folder, 'package.json')).find((path) => existsSync(path))
  if (file === undefined) throw new Error(`no package.json above ${import.meta.dirname}`)
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version
}
