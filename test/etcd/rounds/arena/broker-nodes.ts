/** Three brokers run as real processes, each on a machine with a small disk and its own clock. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type ProgramInit, makeProgram } from '../../../kube/support/program.ts'
import { eventually } from '../../../support/eventually.ts'
import { BROKER_MACHINES, mountDisk } from './arena.ts'
import type { Node } from './etcd-nodes.ts'

const PORT = 7443
const STATUS = 8080
const DISK_MIB = 16
const ROOT = join(import.meta.dirname, '../../../..')

const SHIFT_CLOCK = join(import.meta.dirname, 'shift-clock.ts')
/** The compile cache of the test runner. With it, a start takes a third of the processor time. */
const { NODE_COMPILE_CACHE } = process.env
const COMPILED = NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE }

export interface BrokerNode extends Node {
  /** The state directory of the broker. */
  readonly state: string
  /** Makes the broker's clock wrong by this offset. */
  setClock(offsetMs: number): void
}

export interface BrokerNodes {
  readonly nodes: readonly BrokerNode[]
  /** Waits until all brokers report that they are ready. */
  ready(deadlineMs?: number): Promise<void>
}

export interface BrokerNodesInit {
  readonly folder: string
  readonly storeFlags: readonly string[]
  /** A module that each broker loads first, and that breaks it. */
  readonly preload?: string | undefined
}

export async function startBrokerNodes({ folder, storeFlags, preload }: BrokerNodesInit): Promise<BrokerNodes> {
  const advertise = BROKER_MACHINES.flatMap(({ address }) => ['--advertise', `${address}:${PORT}`])
  const nodes: BrokerNode[] = []
  for (const machine of BROKER_MACHINES) {
    const { name, address } = machine
    const disk = join(folder, name)
    const state = join(disk, 'state')
    mkdirSync(disk)
    await mountDisk(disk, DISK_MIB)
    mkdirSync(state, { mode: 0o700 })
    const clock = join(folder, `${name}.clock`)
    writeFileSync(clock, '0')
    const args = [
      ...['broker', 'serve', '--state', state, '--clusterset', 'demo'],
      ...['--listen', `${address}:${PORT}`, '--status-listen', `${address}:${STATUS}`],
      ...['--audit-log', join(disk, 'audit.log'), ...advertise, ...storeFlags],
    ]
    const own = { PATH: process.env['PATH'], HOME: '/nonexistent', ...COMPILED, SEALANE_TEST_CLOCK: clock }
    const program = makeProgram({ name, directory: folder, netns: name, ...command(args, own, preload) })
    const setClock = (offsetMs: number): void => {
      writeFileSync(clock, String(offsetMs))
      // The signal makes shift-clock.ts read the offset again.
      if (program.pid !== undefined) process.kill(program.pid, 'SIGUSR2')
    }
    nodes.push({ machine, program, disk, state, setClock })
  }
  for (const { program } of nodes) program.start()
  const ready = async (deadlineMs = 60_000): Promise<void> => {
    for (const { machine, program } of nodes) {
      const isReady = async (): Promise<boolean> => {
        const signal = AbortSignal.timeout(2000)
        return (await fetch(`http://${machine.address}:${STATUS}/readyz`, { signal })).ok
      }
      const say = `${machine.name} is ready`
      await eventually(isReady, { say, deadlineMs, intervalMs: 50 }).catch((error: unknown) => {
        throw new Error(`${String(error)}\n${program.failure ?? ''}\n${program.log().slice(-4000)}`)
      })
    }
  }
  await ready()
  return { nodes, ready }
}

/**
 * Returns the command that users run. With a preloaded module it runs the sources instead, because that module patches
 * the sources.
 */
function command(
  args: readonly string[],
  own: NodeJS.ProcessEnv,
  preload: string | undefined,
): Pick<ProgramInit, 'path' | 'args' | 'env'> {
  if (preload === undefined)
    return { path: join(ROOT, 'bin/sealane'), args, env: { ...own, NODE_OPTIONS: `--import ${SHIFT_CLOCK}` } }
  const modules = [SHIFT_CLOCK, preload].flatMap((module) => ['--import', module])
  const warnings = '--disable-warning=ExperimentalWarning'
  return { path: process.execPath, args: [warnings, ...modules, join(ROOT, 'cli/main.ts'), ...args], env: own }
}
