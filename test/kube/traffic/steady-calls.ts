/** A hundred connections a second from the pod `request` of a cluster, and what answered each. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { eventually } from '../../support/eventually.ts'
import { type Site, inRequestPod } from '../support/callers.ts'

const PROGRAM = join(import.meta.dirname, '../../lanes/support/steady-caller.ts')
const LONG = { deadlineMs: 60_000, intervalMs: 100 }

export interface SteadyCall {
  /** When it began, in ms since 1970. */
  readonly at: number
  /** The cluster that answered, or the code of the error. */
  readonly cluster: string
  /** The address of the pod that answered. Empty if none did. */
  readonly pod: string
}

export class SteadyCalls {
  readonly #site: Site
  readonly #namespace: string
  readonly #file: string

  private constructor(site: Site, namespace: string, file: string) {
    this.#site = site
    this.#namespace = namespace
    this.#file = file
  }

  /** `directory`: of this machine, which the pod has too. */
  static async start(site: Site, namespace: string, directory: string, to: string): Promise<SteadyCalls> {
    const file = join(directory, `calls-of-${site.name}`)
    const words = [process.execPath, '--disable-warning=ExperimentalWarning', PROGRAM, to, '42']
    await inRequestPod(site, namespace, `${words.join(' ')} > ${file} 2>&1 < /dev/null & echo $! > ${file}.pid`)
    const calls = new SteadyCalls(site, namespace, file)
    await eventually(() => calls.all().length > 0, { ...LONG, say: `${site.name} calls` })
    return calls
  }

  async stop(): Promise<void> {
    await inRequestPod(this.#site, this.#namespace, `kill $(cat ${this.#file}.pid)`)
  }

  all(): readonly SteadyCall[] {
    if (!existsSync(this.#file)) return []
    const whole = readFileSync(this.#file, 'utf8').split('\n').slice(0, -1)
    return whole.map((line) => {
      const [at = '', cluster = '', pod = ''] = line.split(' ')
      return { at: Number(at), cluster, pod }
    })
  }

  since(at: number): readonly SteadyCall[] {
    return this.all().filter((call) => call.at >= at)
  }

  /** The next calls in the order of their answers. */
  async next(count: number): Promise<readonly SteadyCall[]> {
    const from = this.all().length
    await eventually(() => this.all().length >= from + count, { ...LONG, say: `${count} calls of ${this.#site.name}` })
    return this.all().slice(from, from + count)
  }

  /** Waits until a hundred calls in a row went to these clusters, and to each of them. */
  async settled(clusters: readonly string[]): Promise<void> {
    const wanted = [...clusters].sort().join()
    await eventually(
      async () => {
        const seen = [...new Set((await this.next(100)).map(({ cluster }) => cluster))].sort().join()
        if (seen === wanted) return true
        throw new Error(`calls of ${this.#site.name} go to ${seen}`)
      },
      { ...LONG, say: `calls of ${this.#site.name} go to ${wanted}` },
    )
  }

  /** How many of the next calls each cluster answers, in percent. */
  async percent(of: string, count: number): Promise<number> {
    const seen = await this.next(count)
    return (100 * seen.filter(({ cluster }) => cluster === of).length) / count
  }

  /** The calls that failed after the first answer of one of these. */
  failures(clusters: readonly string[]): readonly SteadyCall[] {
    const all = this.all()
    const first = all.findIndex(({ cluster }) => clusters.includes(cluster))
    return first < 0 ? all : all.slice(first).filter(({ cluster }) => !clusters.includes(cluster))
  }
}
