/** A fault of the failure table, as it is made on plain sites and undone. */
import { once } from 'node:events'
import type { Outcome, PathExplanation, Station } from '../../../explain/path/document.ts'
import type { ReasonCode } from '../../../model/reasons/reasons.ts'
import type { Netns } from '../../support/netns.ts'
import type { Machine, PlainSite, PlainWorld } from './plain-sites.ts'

export interface FaultWorld extends PlainWorld {
  readonly milano: PlainSite
  readonly paris: PlainSite
  readonly roma: PlainSite
}

/** A machine, such as `milano/gw1`. */
export type MachinePath = `${'milano' | 'paris' | 'roma'}/gw${1 | 2}`

export const MACHINES: readonly MachinePath[] = ['milano/gw1', 'milano/gw2', 'paris/gw1', 'roma/gw1']

export type Undo = () => void | Promise<void>

/** A call by the address of a machine among its pods, and where `sealane explain` says that it ends. */
export interface CallEnd {
  readonly from: MachinePath
  /** As the argument of the command. */
  readonly to: string
  /** The site that is also asked. Absent: what the calling side knows is enough. */
  readonly asks?: 'milano' | 'paris' | 'roma'
  /** Default: UNREACHABLE. */
  readonly outcome?: Outcome
  /** The first step that ends all packets, or some of them. Absent if the call arrives. */
  readonly at?: readonly [Station, ReasonCode]
}

/** The step that decides about a call, as `CallEnd` has it. */
export function callEndOf({ outcome, failing, steps }: PathExplanation): string {
  const partly = outcome === 'AMBIGUOUS' ? steps.find(({ decision }) => decision === 'partly') : undefined
  const decisive = failing ?? partly
  return [outcome, ...(decisive === undefined ? [] : [decisive.station, decisive.reason ?? '-'])].join(' ')
}

export function callEndText({ outcome = 'UNREACHABLE', at }: CallEnd): string {
  return [outcome, ...(at ?? [])].join(' ')
}

export interface Fault {
  readonly name: string
  /** What `sealane diagnose` finds on which machine: the reason codes of all problems, the most important first. */
  readonly found: Partial<Readonly<Record<MachinePath, readonly string[]>>>
  /** A call that the fault ends, or may be expected to end. */
  readonly ends: CallEnd
  readonly inject: (world: FaultWorld) => Undo | Promise<Undo>
}

export function machineOf(world: FaultWorld, place: MachinePath): Machine {
  const [site, node] = place.split('/') as ['milano' | 'paris' | 'roma', string]
  return world[site].machine(node)
}

/** A table of another program; `rules` are chains in the language of nft. */
export async function firewall(netns: Netns, rules: string): Promise<Undo> {
  await netns.exec('nft', ['-f', '-'], { input: `table ip fault {\n${rules}\n}\n` })
  return async () => {
    await netns.exec('nft', ['delete', 'table', 'ip', 'fault'])
  }
}

export function chain(hook: string, rules: string, policy = 'accept'): string {
  return `chain ${hook} {\ntype filter hook ${hook} priority 0; policy ${policy}\n${rules}\n}`
}

/** A program that writes a setting again and again, as one that manages a machine does. */
export async function insisting(netns: Netns, file: string, value: string): Promise<Undo> {
  const before = (await netns.exec('cat', [file])).trim()
  const child = netns.spawn('sh', ['-c', 'while :; do echo "$1" > "$0"; echo; sleep 0.1; done', file, value])
  await once(child.stdout!, 'data')
  return async () => {
    child.kill('SIGKILL')
    await once(child, 'exit')
    await netns.exec('sh', ['-c', 'echo "$1" > "$0"', file, before])
  }
}

/** A program that repeats a command, which removes what is not its own. */
export async function repeating(netns: Netns, command: string): Promise<Undo> {
  const child = netns.spawn('sh', ['-c', `while :; do ${command}; echo; sleep 0.05; done`])
  await once(child.stdout!, 'data')
  return async () => {
    child.kill('SIGKILL')
    await once(child, 'exit')
  }
}

/** A program that holds what Sealane needs; `script` prints something once it does. */
export async function program(netns: Netns, script: string): Promise<Undo> {
  const child = netns.spawn(process.execPath, ['-e', script])
  await once(child.stdout!, 'data')
  return async () => {
    child.kill('SIGKILL')
    await once(child, 'exit')
  }
}
