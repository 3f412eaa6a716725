/**
 * Makes faults on three plain sites, round after round. Meanwhile `sealane diagnose` runs on each machine, and `sealane
 * explain` where a call that a fault ends comes from.
 */
import type { Test } from 'tap'
import type { PathExplanation } from '../../../explain/path/document.ts'
import { eventually } from '../../support/eventually.ts'
import { CommandLine } from './command-line.ts'
import {
  type CallEnd,
  type Fault,
  type FaultWorld,
  MACHINES,
  type MachinePath,
  callEndOf,
  callEndText,
  machineOf,
} from './fault.ts'
import { type SitePlan, type WorldPlan, withPlainSites } from './plain-sites.ts'

/** The plans of the three sites, with what their site files have in addition to the usual. */
export type FaultSites = readonly [milano: SitePlan, paris: SitePlan, roma: SitePlan]

/** Runs `story` on the three sites in `folder`, which have joined and whose processes are not started yet. */
export function withFaultStory(
  t: Test,
  folder: string,
  sites: FaultSites,
  story: (story: FaultStory) => Promise<void>,
  plan: WorldPlan = {},
): Promise<void> {
  const run: Parameters<typeof withPlainSites<void>>[2] = async ([milano, paris, roma], plain) => {
    if (milano === undefined || paris === undefined || roma === undefined) throw new Error('no sites')
    const one = new FaultStory(t, { ...plain, milano, paris, roma })
    try {
      await story(one)
    } finally {
      one.close()
    }
  }
  return withPlainSites(folder, sites, run, plan)
}

const FOUND_MS = 60_000
/** All links of all sites come up at once, on a machine that other tests also use. */
const WELL_MS = 150_000

export class FaultStory {
  readonly world: FaultWorld
  readonly #t: Test
  readonly #lines = new Map<string, { readonly line: CommandLine; readonly environment: object }>()
  readonly #began = performance.now()

  constructor(t: Test, world: FaultWorld) {
    this.#t = t
    this.world = world
  }

  upAll(): void {
    for (const [site, node] of MACHINES.map((place) => place.split('/'))) this.world[site as 'milano'].up(node ?? '')
  }

  /**
   * Each round begins when the faults of the previous one are undone: it finds only its own codes, which shows that the
   * previous ones are gone.
   */
  async run(rounds: readonly (readonly Fault[])[]): Promise<void> {
    for (const round of rounds) {
      const undo = await Promise.all(round.map(async (fault) => fault.inject(this.world)))
      this.#t.comment(`${this.#seconds()} s: ${round.map(({ name }) => name).join('; ')}`)
      await this.finds(round)
      for (const one of undo) await one()
    }
    await this.findsNothing()
  }

  async finds(round: readonly Fault[]): Promise<void> {
    await Promise.all(
      round.map(async ({ name, found, ends }) => {
        const seen = Object.entries(found).map(([place, codes]) => this.#waitFor(place as MachinePath, codes, name))
        // Before the fault is seen, a call arrives anyway.
        if (ends.at === undefined) await Promise.all(seen)
        await Promise.all([...seen, this.#waitForEnd(ends, name)])
      }),
    )
  }

  async findsNothing(): Promise<void> {
    await Promise.all(MACHINES.map((place) => this.#waitFor(place, [], 'all is well', WELL_MS)))
  }

  close(): void {
    for (const { line } of this.#lines.values()) line.close()
  }

  async #waitFor(place: MachinePath, codes: readonly string[], name: string, deadlineMs = FOUND_MS): Promise<void> {
    let last: readonly Problem[] = []
    const isFound = await eventually(
      async () => {
        last = await this.#diagnose(place)
        return isSaid(
          last.map(({ reason }) => reason),
          codes,
        )
      },
      { deadlineMs, intervalMs: 1000 },
    ).catch(() => false)
    const what = `${name}: ${codes.join(', ') || 'nothing'} at ${place}`
    this.#t.comment(`${this.#seconds()} s: ${what}`)
    const said = last.map(({ reason, subject, seen, consequences }) =>
      JSON.stringify([reason, `${subject.kind} ${subject.name}`, seen, consequences.map((one) => one.reason)]),
    )
    this.#t.ok(isFound, what, { said })
  }

  async #waitForEnd(call: CallEnd, name: string): Promise<void> {
    const wanted = callEndText(call)
    let last: PathExplanation | undefined
    const isFound = await eventually(
      async () => {
        last = await this.#explain(call)
        return callEndOf(last) === wanted
      },
      { deadlineMs: FOUND_MS, intervalMs: 1000 },
    ).catch(() => false)
    const what = `${name}: a call from ${call.from} to ${call.to} is ${wanted}`
    this.#t.comment(`${this.#seconds()} s: ${what}`)
    const steps = last?.steps.map(({ station, decision, reason, message, notes }) =>
      JSON.stringify([station, decision, reason, message, notes]),
    )
    this.#t.ok(isFound, what, { said: last && callEndOf(last), steps })
  }

  #seconds(): number {
    return Math.round((performance.now() - this.#began) / 100) / 10
  }

  async #diagnose(place: MachinePath): Promise<readonly Problem[]> {
    const site = this.world[place.split('/')[0] as 'milano']
    const result = await this.#lineAt(place).run(['diagnose', '--site', site.file, '-o', 'json'])
    if (result.code > 2) throw new Error(result.stderr)
    const { problems } = JSON.parse(result.stdout) as { problems: readonly Problem[] }
    // These sites expose all pods (plain-sites.ts).
    return problems.filter(({ reason }) => reason !== 'AllPodsExposed')
  }

  /** The other site is asked by its files, which all machines of this test can read. */
  async #explain({ from, to, asks }: CallEnd): Promise<PathExplanation> {
    const site = this.world[from.split('/')[0] as 'milano']
    const other = asks === undefined ? [] : ['--to-site', this.world[asks].file]
    const words = ['--site', site.file, ...other, '--machines', '-o', 'json']
    const { podAddress } = machineOf(this.world, from)
    const result = await this.#lineAt(from, 'explain').run(['explain', podAddress, to, ...words])
    if (result.stdout === '') throw new Error(result.stderr)
    return JSON.parse(result.stdout) as PathExplanation
  }

  /** The command line runs with the clock that the machine has now. Each command has its own, so none waits. */
  #lineAt(place: MachinePath, command = 'diagnose'): CommandLine {
    const { netns, environment } = machineOf(this.world, place)
    const key = `${place} ${command}`
    const known = this.#lines.get(key)
    if (known?.environment === environment && !known.line.isOver) return known.line
    known?.line.close()
    const line = new CommandLine(netns, environment)
    this.#lines.set(key, { line, environment })
    return line
  }
}

/**
 * In addition to the expected findings, there may be the loss in the last half minute of links that are up again, and
 * that the site has just started.
 */
function isSaid(reasons: readonly string[], codes: readonly string[]): boolean {
  const others =
    codes.length === 0
      ? reasons
      : reasons.filter((one) => one !== 'Starting' && (one !== 'LinkLossy' || codes.includes('LinkLossy')))
  return [...new Set(others)].join() === codes.join()
}

interface Problem {
  readonly reason: string
  readonly subject: { readonly kind: string; readonly name: string }
  readonly seen: string
  readonly consequences: readonly { readonly reason: string }[]
}
