/** The processes of one node in a namespace (run-node.ts), and how several of them share their reports. */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { KubeObject } from '../../../model/objects.ts'
import { compiledProgram } from '../../support/compiled-program.ts'
import type { Netns } from '../../support/netns.ts'
import { withSockets } from '../../support/wireguard-sockets.ts'

export interface NodeProcessInit {
  readonly node: string
  readonly netns: Netns
  readonly folder: string
  /** The UDP port of the overlay. Absent: the default. */
  readonly overlayPort?: number
  /** Sets failClosed of both parts to true, or does not state it. Absent: true. */
  readonly failClosed?: boolean
  /** Lane numbers and public addresses. Absent: no gateway runs on the node. */
  readonly lanes?: readonly { readonly lane: number; readonly publicAddress?: string }[]
}

export class NodeProcess {
  readonly #child: ChildProcess
  readonly #listeners: ((object: KubeObject) => void)[] = []
  readonly #objects = new Map<string, KubeObject>()
  errors = ''

  constructor({ node, netns, folder, lanes = [], overlayPort, failClosed = true }: NodeProcessInit) {
    const sockets = join(folder, 'wireguard')
    for (const name of ['wireguard', 'state']) mkdirSync(join(folder, name), { recursive: true })
    const program = [process.execPath, compiledProgram(join(import.meta.dirname, 'run-node.ts'))]
    const command = [...program, node, join(folder, 'state'), JSON.stringify(lanes)]
    const inside = ['netns', 'exec', netns.name, ...withSockets(sockets, command)]
    // The program leads a session of its own, as a service does, because the kernel favours processes by session.
    const detached = process.env['SEALANE_TEST_FAVOURED'] === '1'
    const port = overlayPort === undefined ? {} : { SEALANE_TEST_OVERLAY_PORT: String(overlayPort) }
    const open = failClosed ? {} : { SEALANE_TEST_FAIL_CLOSED: '0' }
    const env = { ...process.env, ...port, ...open }
    this.#child = spawn('ip', inside, { detached, env, stdio: ['pipe', 'pipe', 'pipe'] })
    // Reports of others are passed on until the test is over, also to a process that has just ended.
    this.#child.stdin?.on('error', () => undefined)
    this.#child.stderr?.on('data', (chunk: Buffer) => (this.errors += chunk.toString()))
    createInterface({ input: this.#child.stdout! }).on('line', (line) => {
      if (process.env['SEALANE_TEST_LOG'] === '1') process.stderr.write(`${line}\n`)
      const { object } = JSON.parse(line) as { object?: KubeObject }
      if (object === undefined) return
      this.#objects.set(`${object.kind}/${object.metadata.name}`, object)
      for (const listener of this.#listeners) listener(object)
    })
  }

  put(...objects: readonly KubeObject[]): void {
    for (const object of objects) this.#child.stdin?.write(`${JSON.stringify({ put: object })}\n`)
  }

  /** Makes loops that wait for their time run at once. */
  wake(): void {
    this.#child.stdin?.write(`${JSON.stringify({ wake: true })}\n`)
  }

  /** Pauses the process; its kernel state keeps working. */
  pause(): void {
    this.#child.kill('SIGSTOP')
  }

  resume(): void {
    this.#child.kill('SIGCONT')
  }

  get(kind: string, name: string): KubeObject | undefined {
    return this.#objects.get(`${kind}/${name}`)
  }

  /** From now on the other process gets what this node reports about itself. */
  report(other: NodeProcess, isOurs: (object: KubeObject) => boolean): void {
    this.follow((object) => {
      if (isOurs(object)) other.put(object)
    })
  }

  /** Passes on each object that the process holds, and each that it writes or is given from now on. */
  follow(listener: (object: KubeObject) => void): void {
    for (const object of this.#objects.values()) listener(object)
    this.#listeners.push(listener)
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    this.resume()
    const ended = new Promise((resolve) => this.#child.once('exit', resolve))
    this.#child.kill('SIGTERM')
    await ended
  }
}
