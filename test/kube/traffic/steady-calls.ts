/** A hundred connections a second from the pod `request` of a cluster, and what answered each. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { eventually } from '../../support/eventually.ts'
import type { Site } from '../support/callers.ts'

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
  readonly #process: ChildProcess
  readonly #calls: SteadyCall[] = []

  private constructor(site: Site, process: ChildProcess) {
    this.#site = site
    this.#process = process
    let rest = ''
    process.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
      const lines = (rest + chunk).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) {
        const [at = '', cluster = '', pod = ''] = line.split(' ')
        this.#calls.push({ at: Number(at), cluster, pod })
      }
    })
  }

  /** `node`: the network namespace of the node of the pod. */
  static async start(site: Site, namespace: string, node: string, to: string): Promise<SteadyCalls> {
    const pod = await site.api.get<{ readonly status: { readonly podIP: string } }>(
      `/api/v1/namespaces/${namespace}/pods/request`,
    )
    const words = [process.execPath, '--disable-warning=ExperimentalWarning', PROGRAM, to, '42']
    const argv = ['netns', 'exec', namespaceOf(node, pod.status.podIP), ...words]
    const calls = new SteadyCalls(site, spawn('ip', argv, { stdio: ['ignore', 'pipe', 'inherit'] }))
    await eventually(() => calls.#calls.length > 0, { ...LONG, say: `${site.name} calls` })
    return calls
  }

  async stop(): Promise<void> {
    const ended = once(this.#process, 'exit')
    this.#process.kill('SIGKILL')
    await ended
  }

  all(): readonly SteadyCall[] {
    return this.#calls
  }

  since(at: number): readonly SteadyCall[] {
    return this.all().filter((call) => call.at >= at)
  }

  /** The next calls that begin. An earlier one may still be under way, and go to where calls went then. */
  async next(count: number): Promise<readonly SteadyCall[]> {
    const at = Date.now()
    const say = `${count} calls of ${this.#site.name}`
    await eventually(() => this.since(at).length >= count, { ...LONG, say })
    return this.since(at).slice(0, count)
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

/** The network namespace of the pod with this address. The names of pods of a node begin with that of the node. */
function namespaceOf(node: string, address: string): string {
  const ip = (...args: readonly string[]): string => execFileSync('ip', args, { encoding: 'utf8' })
  const names = ip('netns', 'list')
    .split('\n')
    .map((line) => line.split(' ')[0] ?? '')
  const found = names.find(
    (name) => name.startsWith(`${node}-`) && ip('-n', name, 'address').includes(`inet ${address}/`),
  )
  if (found === undefined) throw new Error(`no network namespace of ${node} has ${address}`)
  return found
}
