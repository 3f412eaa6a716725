/** One cluster's agent as a process, started from a site file. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Program, makeProgram } from '../../test/kube/support/program.ts'
import { eventually } from '../../test/support/eventually.ts'

export const ROOT = join(import.meta.dirname, '..', '..')
export const SEALANE = join(ROOT, 'bin', 'sealane')

export interface BenchAgentInit {
  readonly name: string
  readonly podCIDR: string
  readonly serviceCIDR: string
  readonly directory: string
  readonly kubeconfig: string
  readonly statusPort: number
}

export interface AgentMemory {
  /** The resident memory in megabytes (1,000,000 bytes). */
  readonly now: number
  /** The most memory it ever had. */
  readonly peak: number
}

export class BenchAgent {
  readonly #program: Program
  readonly #statusPort: number
  readonly #state: string

  constructor(init: BenchAgentInit) {
    const { name, directory, statusPort } = init
    this.#statusPort = statusPort
    this.#state = join(directory, 'state')
    const site = join(directory, 'site.yaml')
    writeFileSync(site, siteFile(init, this.#state))
    const args = ['up', '--site', site, '--node', 'n1', '--component', 'agent', '--log-level', 'warn']
    const status = ['--status-listen', `127.0.0.1:${statusPort}`]
    this.#program = makeProgram({ name: `${name}-agent`, path: SEALANE, args: [...args, ...status], directory })
  }

  /** Starts it without waiting. */
  start(): void {
    this.#program.start()
  }

  ready(): Promise<void> {
    return isReady(this.#program, this.#statusPort)
  }

  /** Stops it as a cluster does, so that it gives its lease up. */
  stop(): Promise<void> {
    return this.#program.kill('SIGTERM')
  }

  /** Removes its state, so that the next start knows nothing of the clusterset. */
  forgetReplica(): void {
    rmSync(this.#state, { recursive: true, force: true })
  }

  /** Throws if the agent does not run. */
  memory(): AgentMemory {
    const { pid, failure, name } = this.#program
    if (pid === undefined) throw new Error(`${name} ${failure ?? 'does not run'}: ${this.#program.log()}`)
    const text = readFileSync(`/proc/${pid}/status`, 'utf8')
    const megabytes = (field: string): number =>
      (Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(text)?.[1]) * 1024) / 1e6
    return { now: megabytes('VmRSS'), peak: megabytes('VmHWM') }
  }

  /** How many objects it has written to its cluster since it started. */
  async writes(): Promise<number> {
    const text = await (await fetch(`http://127.0.0.1:${this.#statusPort}/metrics`)).text()
    const counts = [...text.matchAll(/^sealane_agent_writes_total\{.*\} (\d+)$/gm)]
    return counts.reduce((sum, [, count]) => sum + Number(count), 0)
  }

  /** The end of its log, for messages. */
  log(): string {
    return this.#program.log()
  }
}

/** JSON is valid YAML. */
function siteFile({ name, podCIDR, serviceCIDR, kubeconfig }: BenchAgentInit, state: string): string {
  return JSON.stringify({
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Site',
    metadata: { name },
    spec: { kubernetes: { kubeconfig }, state, podCIDRs: [podCIDR], serviceCIDRs: [serviceCIDR] },
  })
}

/** Waits until a process of ours reports that it is ready. Throws with the end of its log if it has died. */
export async function isReady(program: Program, port: number): Promise<void> {
  await eventually(
    async () => {
      if (program.failure !== undefined) return true
      const answer = await fetch(`http://127.0.0.1:${port}/readyz`)
      const text = await answer.text()
      if (!answer.ok) throw new Error(text)
      return true
    },
    { deadlineMs: 60_000, say: `${program.name} is ready` },
  )
  if (program.failure !== undefined) throw new Error(`${program.name} ${program.failure}: ${program.log()}`)
}
