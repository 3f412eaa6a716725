/** The command line on a machine of a plain site, without a new Node process for each command. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { type Interface, createInterface } from 'node:readline'
import type { CliResult } from '../../cli/run-cli.ts'
import { compiledProgram } from '../../support/compiled-program.ts'
import type { Netns } from '../../support/netns.ts'

const PROGRAM = join(import.meta.dirname, 'command-line-process.ts')

export class CommandLine {
  readonly #child: ChildProcess
  readonly #answers: Interface
  /** Commands run one after another. */
  #last: Promise<unknown> = Promise.resolve()

  /** `environment` is added to the test's own. */
  constructor(netns: Netns, environment: NodeJS.ProcessEnv = {}) {
    // The test runner adds itself to every Node process that is started.
    const { NODE_OPTIONS: _options, ...env } = process.env
    const args = ['netns', 'exec', netns.name, process.execPath, compiledProgram(PROGRAM)]
    this.#child = spawn('ip', args, { stdio: ['pipe', 'pipe', 'inherit'], env: { ...env, ...environment } })
    this.#answers = createInterface({ input: this.#child.stdout! })
  }

  /** Whether the process has ended, as after a loss of the machine's power. */
  get isOver(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null
  }

  run(args: readonly string[]): Promise<CliResult> {
    const answer = this.#last.then(async () => {
      const line = once(this.#answers, 'line') as Promise<[string]>
      this.#child.stdin?.write(`${JSON.stringify(args)}\n`)
      return JSON.parse((await line)[0]) as CliResult
    })
    this.#last = answer.catch(() => undefined)
    return answer
  }

  /**
   * Lets the process end by itself, so that it stores what it has compiled; a process that hangs ends with its
   * namespace.
   */
  close(): void {
    this.#child.stdin?.end()
  }
}
