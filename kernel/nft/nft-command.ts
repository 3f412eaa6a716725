/**
 * Drives nftables through its command: `nft -f -` changes, `nft list` reads. nftables documents the command and keeps
 * it stable, unlike its netlink messages.
 */
import { setImmediate } from 'node:timers/promises'
import { type Clock, SystemClock } from '../../reconcile/reconcile.ts'
import { KernelError, type KernelErrorCode, type RunCommand, isNotFound, runCommand } from '../kernel.ts'
import { countsInSlices, formatNft, parseCounters, parseElements } from './nft-text.ts'
import type { Nft, NftElement, NftFamily, NftStatement, TableCounts } from './nft-transaction.ts'
import { NftWatch } from './nft-watch.ts'

/** Of `nft -i`, which would write its history to HOME. */
export const INTERACTIVE = { HOME: '/dev/null', TERM: 'dumb' }

export interface NftCommandInit {
  /** Default ip. */
  readonly family?: NftFamily
  readonly run?: RunCommand
  readonly timeoutMs?: number
  readonly clock?: Clock
}

export class NftCommand implements Nft {
  readonly family: NftFamily
  readonly #run: RunCommand
  readonly #timeoutMs: number
  readonly #watch: NftWatch

  constructor(init: NftCommandInit = {}) {
    this.family = init.family ?? 'ip'
    this.#run = init.run ?? runCommand
    this.#timeoutMs = init.timeoutMs ?? 30_000
    this.#watch = new NftWatch(init.clock ?? new SystemClock())
  }

  run(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void> {
    return this.own(() => this.#feed(['-f', '-'], statements, signal))
  }

  onChange(table: string, listener: () => void): () => void {
    return this.#watch.follow(this.family, table, listener)
  }

  /** Runs a transaction of this object, so that the watch does not report it as a change by another program. */
  protected own<T>(run: () => Promise<T>): Promise<T> {
    return this.#watch.own(run)
  }

  check(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void> {
    return this.#feed(['--check', '-f', '-'], statements, signal)
  }

  async tables(prefix: string, signal?: AbortSignal): Promise<readonly string[]> {
    const text = await this.#list(['list', 'tables', this.family], signal)
    const names = text.split('\n').map((line) => /^table \S+ (\S+)/.exec(line)?.[1] ?? '')
    return names.filter((name) => name !== '' && name.startsWith(prefix)).sort()
  }

  async structure(table: string, signal?: AbortSignal): Promise<string | undefined> {
    // Before 1.0.7, `nft -t list table` reads all elements and only does not print them.
    const text = await this.#list(['-s', '-t', 'list', 'ruleset', this.family], signal)
    const from = `\n${text}`.indexOf(`\ntable ${this.family} ${table} {\n`)
    return from < 0 ? undefined : text.slice(from, text.indexOf('\n}\n', from) + 3)
  }

  async listTable(table: string, signal?: AbortSignal): Promise<string | undefined> {
    try {
      return await this.#list(['-s', 'list', 'table', this.family, table], signal)
    } catch (error) {
      if (isNotFound(error)) return undefined
      throw error
    }
  }

  async counters(table: string, signal?: AbortSignal): Promise<ReadonlyMap<string, number>> {
    return parseCounters(await this.#list(['list', 'counters', 'table', this.family, table], signal))
  }

  async counts(table: string, sets: readonly string[], signal?: AbortSignal): Promise<TableCounts> {
    const commands = sets.map((set) => ['list', 'set', this.family, table, set])
    const steps = countsInSlices(await this.#listAll(commands, signal))
    let step = steps.next()
    while (step.done !== true) {
      // Others of this process run in between.
      await setImmediate()
      step = steps.next()
    }
    return step.value
  }

  /**
   * In one process, because starting one takes longer than such a listing. `nft -f` lists a single thing only; with -i
   * each line is a command of its own. Some builds of the tool have no -i.
   */
  async #listAll(commands: readonly (readonly string[])[], signal: AbortSignal | undefined): Promise<string> {
    const input = commands.map((words) => `${words.join(' ')}\n`).join('')
    const init = { input, env: INTERACTIVE, signal, timeoutMs: this.#timeoutMs }
    const { code, stdout, stderr } = await this.#run('nft', ['-i'], init)
    if (code === 0 && !/\berror\b/i.test(stderr)) return stdout
    const texts: string[] = []
    for (const words of commands) texts.push(await this.#list(words, signal))
    return texts.join('')
  }

  async elements(table: string, map: string, signal?: AbortSignal): Promise<readonly NftElement[]> {
    // The tool must be told whether it is a map or a set. Text is half as long as JSON.
    const listing = this.#list(['-s', 'list', 'map', this.family, table, map], signal).catch((error: unknown) => {
      if (!isNotFound(error)) throw error
      return this.#list(['-s', 'list', 'set', this.family, table, map], signal)
    })
    return parseElements(await listing)
  }

  async #feed(
    args: readonly string[],
    statements: readonly NftStatement[],
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const text = formatNft(statements, this.family)
    if (text === '') return
    const result = await this.#run('nft', args, { input: text, signal, timeoutMs: this.#timeoutMs })
    if (result.code !== 0) throw refusal(text, result.stderr)
  }

  async #list(args: readonly string[], signal: AbortSignal | undefined): Promise<string> {
    const result = await this.#run('nft', args, { signal, timeoutMs: this.#timeoutMs })
    if (result.code === 0) return result.stdout
    const detail = firstMessage(result.stderr)
    throw new KernelError(classify(detail), `nft ${args.join(' ')}`, detail)
  }
}

/**
 * nft reports `/dev/stdin:LINE:FROM-TO: Error: …`. The statement that contains this line is the one that was refused.
 */
function refusal(text: string, stderr: string): KernelError {
  const detail = firstMessage(stderr)
  const line = Number(/^[^\s:]*:(\d+):/m.exec(stderr)?.[1] ?? 0)
  return new KernelError(classify(detail), `nft ${statementAt(text, line)}`, detail)
}

function statementAt(text: string, line: number): string {
  const lines = text.split('\n')
  let start = Math.max(0, line - 1)
  const refused = lines[start] ?? ''
  // Each element has its own line: go back to the line that opens the list.
  while (start > 0 && !/^(?:add|delete|flush) /.test(lines[start] ?? '')) start -= 1
  const head = lines[start] ?? ''
  if (line === 0) return text.slice(0, 400)
  return (head === refused ? head : `${head} ${refused.replace(/,$/, '')} }`).slice(0, 400)
}

function firstMessage(stderr: string): string {
  const found = stderr.split('\n').find((text) => /\berror\b/i.test(text)) ?? stderr.split('\n')[0] ?? ''
  const detail = found.replace(/^.*?\berror: */i, '').replace(/^Could not process rule: /, '')
  return (detail === '' ? 'refused without a message' : detail).slice(0, 300)
}

const MESSAGES: readonly (readonly [RegExp, KernelErrorCode])[] = [
  // The address belongs to another family: `…: Address family for hostname not supported`.
  [/Could not resolve hostname/i, 'EINVAL'],
  [/No such file or directory|does not exist/i, 'ENOENT'],
  [/File exists|overlaps with an existing|conflicting intervals/i, 'EEXIST'],
  [/Device or resource busy/i, 'EBUSY'],
  [/Operation not permitted|must be root|Permission denied/i, 'EPERM'],
  [/Operation not supported|not supported/i, 'EOPNOTSUPP'],
  [/Interrupted system call/i, 'EINTR'],
  [
    /syntax error|invalid|unexpected|conflicting protocols|Could not parse|No symbol type|Too many links|mismatch|Invalid argument|unknown|Could not resolve|expected|cannot use/i,
    'EINVAL',
  ],
]

function classify(detail: string): KernelErrorCode {
  return MESSAGES.find(([pattern]) => pattern.test(detail))?.[1] ?? 'UNKNOWN'
}
