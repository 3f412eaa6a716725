/**
 * Reads configuration values out of strings (flags, environment) and collects every problem, so that a person
 * mends them all in one go.
 */
import { parseDuration, type DurationRange } from './duration.ts'
import { InvalidValueError, parseHostPort, type HostPort } from './host-port.ts'
import { UserError } from './user-error.ts'

export type ConfigSource = Readonly<Record<string, string | undefined>>

/** Each reader gives the fallback when the key is absent, or when it is wrong: finish() then throws. */
export class ConfigValues {
  readonly #source: ConfigSource
  readonly #problems: string[] = []
  readonly #read = new Set<string>()

  constructor(source: ConfigSource) {
    this.#source = source
  }

  text(key: string, fallback: string): string {
    return this.#get(key) ?? fallback
  }

  required(key: string): string {
    const value = this.#get(key)
    if (value === undefined || value === '') this.#problems.push(`${key}: is required`)
    return value ?? ''
  }

  integer(key: string, fallback: number, range: { readonly min: number; readonly max: number }): number {
    return this.parse(key, fallback, (text) => {
      const value = /^-?\d{1,15}$/.test(text) ? Number(text) : Number.NaN
      if (value >= range.min && value <= range.max) return value
      throw new InvalidValueError(key, text, `a whole number from ${range.min} to ${range.max}`)
    })
  }

  flag(key: string, fallback: boolean): boolean {
    return this.parse(key, fallback, (text) => {
      if (text === 'true' || text === 'false') return text === 'true'
      throw new InvalidValueError(key, text, 'true or false')
    })
  }

  /** Milliseconds. */
  duration(key: string, fallbackMs: number, range: DurationRange = {}): number {
    return this.parse(key, fallbackMs, (text) => parseDuration(text, key, range))
  }

  hostPort(key: string, fallback: HostPort): HostPort {
    return this.parse(key, fallback, (text) => parseHostPort(text, key))
  }

  oneOf<const T extends string>(key: string, fallback: T, choices: readonly T[]): T {
    return this.parse(key, fallback, (text) => {
      const choice = choices.find((known) => known === text)
      if (choice !== undefined) return choice
      throw new InvalidValueError(key, text, `one of ${choices.join(', ')}`)
    })
  }

  /** With any parser that throws an Error whose message is complete. */
  parse<T>(key: string, fallback: T, parser: (text: string) => T): T {
    const text = this.#get(key)
    if (text === undefined) return fallback
    try {
      return parser(text)
    } catch (error) {
      this.#problems.push(error instanceof Error ? error.message : String(error))
      return fallback
    }
  }

  /** Complains about keys with this prefix that nothing has read: most are misspelt. */
  rejectUnknown(prefix: string): void {
    for (const key of Object.keys(this.#source)) {
      if (key.startsWith(prefix) && !this.#read.has(key)) this.#problems.push(`${key}: no such setting`)
    }
  }

  /** Throws UserError (exit code 2) that lists every problem. */
  finish(): void {
    if (this.#problems.length === 0) return
    throw new UserError(`configuration: ${this.#problems.join('\n  ')}`, { exitCode: 2 })
  }

  #get(key: string): string | undefined {
    this.#read.add(key)
    return this.#source[key]
  }
}
