/** The generator processes, as the benchmark calls them. */
import { type ChildProcess, fork } from 'node:child_process'
import { join } from 'node:path'
import type { FleetInit, FleetState } from './fleet.ts'
import type { Answer, Ask } from './generator.ts'
import { type Counts, Histogram } from './histogram.ts'

/** The number of members of one process. */
const MEMBERS = 500
const CALL_MS = 400_000

export class Generators {
  readonly #children: readonly ChildProcess[]
  readonly #waiting = new Map<number, (answer: Answer) => void>()
  #next = 1

  constructor(init: FleetInit, clusters: number) {
    // There are at least two, so that watchers never wait for the publisher of a change.
    const count = Math.max(2, Math.ceil(clusters / MEMBERS))
    this.#children = Array.from({ length: count }, () => {
      const child = fork(join(import.meta.dirname, 'generator.ts'), [JSON.stringify(init)], {
        execArgv: ['--disable-warning=ExperimentalWarning', '--max-semi-space-size=32'],
      })
      child.on('message', (answer: Answer) => {
        this.#waiting.get(answer.id)?.(answer)
        this.#waiting.delete(answer.id)
      })
      child.once('exit', (code) => {
        for (const [id, settle] of this.#waiting) settle({ id, error: `a generator ended with ${code ?? 'a signal'}` })
      })
      return child
    })
  }

  get count(): number {
    return this.#children.length
  }

  /** Calls a method in one of them. Throws what the method threw, and if there is no answer in time. */
  call(i: number, on: Ask['on'], method: string, args: unknown = {}): Promise<unknown> {
    const id = (this.#next += 1)
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${method} has no answer after ${CALL_MS} ms`)), CALL_MS)
      this.#waiting.set(id, ({ result, error }) => {
        clearTimeout(timer)
        if (error === undefined) resolve(result)
        else reject(new Error(`${method}: ${error}`))
      })
      this.#children[i]?.send({ id, on, method, args } satisfies Ask)
    })
  }

  all(on: Ask['on'], method: string, args: unknown = {}): Promise<unknown[]> {
    return Promise.all(this.#children.map((_, i) => this.call(i, on, method, args)))
  }

  async state(): Promise<FleetState> {
    const states = (await this.all('fleet', 'state')) as FleetState[]
    const sum = (of: (state: FleetState) => number): number => states.reduce((all, one) => all + of(one), 0)
    const refused = states.find((one) => one.refused !== undefined)?.refused
    if (refused !== undefined) throw new Error(`the broker refused a record of the benchmark: ${refused}`)
    return {
      inSync: sum((one) => one.inSync),
      published: sum((one) => one.published),
      events: sum((one) => one.events),
      eventsOfOne: Math.max(...states.map((one) => one.eventsOfOne)),
      sentAway: sum((one) => one.sentAway),
      reasons: states.flatMap((one) => one.reasons),
      askedInAll: sum((one) => one.askedInAll),
      lost: sum((one) => one.lost),
      outageMs: Math.max(...states.map((one) => one.outageMs)),
      messageBytes: sum((one) => one.messageBytes),
      eventBytes: sum((one) => one.eventBytes),
      bytesRead: sum((one) => one.bytesRead),
      failedConnects: sum((one) => one.failedConnects),
      refused,
    }
  }

  async ages(on: Ask['on']): Promise<Histogram> {
    const all = new Histogram()
    for (const counts of (await this.all(on, 'ages')) as Counts[]) all.merge(counts)
    return all
  }

  stop(): void {
    for (const child of this.#children) child.kill('SIGKILL')
  }
}
