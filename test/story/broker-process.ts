/** `sealane broker serve` as a process of its own, which can be killed and restarted. */
import { once } from 'node:events'
import { join } from 'node:path'
import type { Test } from 'tap'
import { runCli, spawnServing } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

export class BrokerProcess {
  /** The state folder of the next start. */
  state: string
  readonly #t: Test
  readonly #ports: readonly number[]
  readonly #flags: readonly string[]
  #child: ReturnType<typeof spawnServing> | undefined

  static async start(t: Test, flags: readonly string[] = []): Promise<BrokerProcess> {
    const broker = new BrokerProcess(t, [await freePort(), await freePort()], flags)
    await broker.start()
    return broker
  }

  private constructor(t: Test, ports: readonly number[], flags: readonly string[]) {
    this.#flags = flags
    this.#t = t
    this.#ports = ports
    this.state = join(temporaryFolder(t), 'broker')
  }

  async start(): Promise<void> {
    const [at = '', status = ''] = this.#ports.map((port) => `127.0.0.1:${port}`)
    const child = spawnServing(this.#t, [
      ...['broker', 'serve', '--state', this.state, '--clusterset', 'demo'],
      ...['--listen', at, '--advertise', at, '--status-listen', status],
      ...this.#flags,
    ])
    this.#child = child
    const isReady = async (): Promise<boolean> => (await fetch(`http://${status}/readyz`)).ok
    await eventually(isReady, { deadlineMs: 30_000, say: 'the broker is ready' }).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${child.said()}`)
    })
  }

  /** Sends SIGKILL, and resolves when nothing of the process runs any more. */
  async kill(): Promise<void> {
    const child = this.#child
    if (child === undefined) return
    const ended = once(child, 'close')
    child.kill('SIGKILL')
    await ended
    this.#child = undefined
  }

  /** A token of the broker's own clusterset, or of another one. */
  async token(clusterset?: string): Promise<string> {
    const which = clusterset === undefined ? [] : ['--clusterset', clusterset]
    const { stdout, stderr } = await runCli(['token', 'create', '--state', this.state, ...which, '-o', 'json'])
    if (stdout === '') throw new Error(stderr)
    return (JSON.parse(stdout) as { token: string }).token
  }

  async metrics(): Promise<string> {
    return (await fetch(`http://127.0.0.1:${this.#ports[1]}/metrics`)).text()
  }
}
