/** A real Prometheus of the distribution, with the rules and targets of a test. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { atExit } from '../at-exit.ts'
import { eventually } from '../eventually.ts'
import type { RuleFile } from '../../../install/monitoring/rule-file.ts'

export interface Job {
  readonly name: string
  /** The targets as host:port. */
  readonly targets: readonly string[]
  /** Whether the job and instance labels of the targets are kept. */
  readonly honorLabels?: boolean
}

export interface PrometheusInit {
  readonly folder: string
  /** The address to listen on, as host:port. */
  readonly listen: string
  readonly jobs: readonly Job[]
  readonly rules: RuleFile
  /** The interval at which targets are scraped and rules evaluated. */
  readonly intervalMs: number
  /** The words before the command line: `ip netns exec NAME`. */
  readonly within?: readonly string[]
}

export interface Sample {
  readonly metric: Readonly<Record<string, string>>
  readonly value: readonly [number, string]
}

export interface FiringAlert {
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  readonly state: string
}

/** Why a test that needs Prometheus cannot run; undefined if it is installed. */
export function prometheusMissing(): string | undefined {
  const { error } = spawnSync('prometheus', ['--version'], { stdio: 'ignore' })
  return error === undefined ? undefined : 'needs the package prometheus'
}

export class Prometheus {
  readonly #init: PrometheusInit
  readonly #process: ChildProcess
  readonly #forget: () => void
  #said = ''

  static async start(init: PrometheusInit): Promise<Prometheus> {
    const { folder, jobs, rules, intervalMs } = init
    const config = {
      global: {
        scrape_interval: `${intervalMs}ms`,
        scrape_timeout: `${intervalMs}ms`,
        evaluation_interval: `${intervalMs}ms`,
      },
      rule_files: ['rules.yaml'],
      scrape_configs: jobs.map(({ name, targets, honorLabels = false }) => ({
        job_name: name,
        honor_labels: honorLabels,
        static_configs: [{ targets }],
      })),
    }
    // JSON is valid YAML.
    writeFileSync(join(folder, 'prometheus.yaml'), JSON.stringify(config))
    writeFileSync(join(folder, 'rules.yaml'), JSON.stringify(rules))
    const prometheus = new Prometheus(init)
    await eventually(() => prometheus.#get(['/-/ready']).then((text) => text.includes('Ready')), {
      deadlineMs: 30_000,
      intervalMs: 200,
      say: 'Prometheus is ready',
    }).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${prometheus.said}`)
    })
    return prometheus
  }

  private constructor(init: PrometheusInit) {
    this.#init = init
    const { folder, listen, within = [] } = init
    const [command, ...args] = [
      ...within,
      'prometheus',
      `--config.file=${join(folder, 'prometheus.yaml')}`,
      `--storage.tsdb.path=${join(folder, 'data')}`,
      `--web.listen-address=${listen}`,
      '--log.level=warn',
    ]
    this.#process = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] })
    this.#forget = atExit('programs', () => void this.#process.kill('SIGKILL'))
    for (const stream of [this.#process.stdout, this.#process.stderr]) {
      stream?.on('data', (data: Buffer) => (this.#said += data.toString()))
    }
  }

  get said(): string {
    return this.#said
  }

  /** The results of instant queries, in their order, by one process for all. Throws the errors of Prometheus. */
  async query(exprs: readonly string[]): Promise<readonly (readonly Sample[])[]> {
    const paths = exprs.map((expr) => `/api/v1/query?query=${encodeURIComponent(expr)}`)
    const answers = await this.#json<{ result: readonly Sample[] }>(paths)
    return answers.map(({ result }) => result)
  }

  /** All alerts that are pending or firing. */
  async alerts(): Promise<readonly FiringAlert[]> {
    const [answer] = await this.#json<{ alerts: readonly FiringAlert[] }>(['/api/v1/alerts'])
    return answer?.alerts ?? []
  }

  async stop(): Promise<void> {
    const child = this.#process
    this.#forget()
    if (child.exitCode !== null || child.signalCode !== null) return
    child.kill('SIGTERM')
    await once(child, 'exit')
  }

  async #json<T>(paths: readonly string[]): Promise<readonly T[]> {
    if (paths.length === 0) return []
    const lines = (await this.#get(paths)).split('\n').filter((line) => line !== '')
    return lines.map((line, i) => {
      const answer = JSON.parse(line) as { status: string; error?: string; data: T }
      if (answer.status !== 'success') throw new Error(`${paths[i] ?? ''}: ${answer.error ?? line}`)
      return answer.data
    })
  }

  /** The answers, one line for each path. */
  #get(paths: readonly string[]): Promise<string> {
    const { listen, within = [] } = this.#init
    const urls = paths.map((path) => `http://${listen}${path}`)
    const [command = '', ...args] = [...within, 'curl', '-s', '--max-time', '10', '--write-out', '\\n', ...urls]
    return new Promise((resolve, reject) => {
      const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'ignore'] })
      let text = ''
      child.stdout.on('data', (data: Buffer) => (text += data.toString()))
      child.once('error', reject)
      child.once('close', (code) => (code === 0 ? resolve(text) : reject(new Error(`curl ended with ${code}`))))
    })
  }
}
