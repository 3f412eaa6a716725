/** Runs `sealane broker ca` beside a running broker. */
import type { Test } from 'tap'
import type { AuthorityStatus, AuthorityStep } from '../../../protocol/admin/admin-api.ts'
import { type CliResult, runCli } from '../../cli/run-cli.ts'
import { eventually } from '../../support/eventually.ts'

/**
 * Deadline and interval for steps that take seconds. Each check runs a command, so ten checks a second would take more
 * time than the step.
 */
export const PATIENCE = { deadlineMs: 60_000, intervalMs: 400 }
/** The same deadline with the usual short interval, for checks inside this process, which cost nothing. */
export const OWN_PATIENCE = { deadlineMs: PATIENCE.deadlineMs }

export class AuthorityCommands {
  readonly #broker: { readonly state: string }

  constructor(broker: { readonly state: string }) {
    this.#broker = broker
  }
  async ask(...words: string[]): Promise<CliResult> {
    return runCli(['broker', 'ca', ...words, '--state', this.#broker.state, '-o', 'json'])
  }
  async status(): Promise<AuthorityStatus> {
    return JSON.parse((await this.ask('status')).stdout) as AuthorityStatus
  }
  /** Runs a step, and checks that it succeeds and that a second run reports it as repeated. */
  async step(t: Test, ...words: string[]): Promise<AuthorityStep> {
    const first = await this.ask(...words)
    t.equal(first.code, 0, `${words.join(' ')}: ${first.stderr}`)
    t.match(JSON.parse(first.stdout), { repeated: false }, words.join(' '))
    const again = await this.ask(...words)
    t.match(JSON.parse(again.stdout), { repeated: true }, `${words.join(' ')}, a second time`)
    return JSON.parse(first.stdout) as AuthorityStep
  }
  async until(phase: AuthorityStatus['phase'], isSo: (status: AuthorityStatus) => boolean = () => true): Promise<void> {
    let last: AuthorityStatus | undefined
    const look = async (): Promise<boolean> => {
      last = await this.status()
      return last.phase === phase && isSo(last)
    }
    await eventually(look, { ...PATIENCE, say: phase }).catch((error: unknown) => {
      throw new Error(`${String(error)}: ${JSON.stringify(last, undefined, 1)}`)
    })
  }
}

export const isFree = ({ waitsFor }: AuthorityStatus): boolean => waitsFor.members.length + waitsFor.tokens.length === 0
