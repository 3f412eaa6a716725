/**
 * Machines as network namespaces on one bridge; who calls them is the namespace of this process:
 *
 *   e0 e1 e2   etcd          b0 b1 b2   brokers
 *    └──┴──┴────── bridge ────┴──┴──┘
 *                    │ 10.77.0.1: members and the operator
 *
 * To be used inside a namespace of its own (inPrivateNetns()), with which all of it goes.
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const run = promisify(execFile)
const BRIDGE = 'hub'
export const CALLERS = '10.77.0.1'

export interface Machine {
  /** Also of its namespace. */
  readonly name: string
  readonly address: string
}

export const ETCD_MACHINES: readonly Machine[] = [0, 1, 2].map((i) => ({ name: `e${i}`, address: `10.77.0.1${i}` }))
export const BROKER_MACHINES: readonly Machine[] = [0, 1, 2].map((i) => ({ name: `b${i}`, address: `10.77.0.2${i}` }))

/** What is cut is dropped on the way in and on the way out, without a word to either side. */
const CUTS = `table inet cuts {
  set far { type ipv4_addr; }
  chain in { type filter hook input priority 0; ip saddr @far drop; }
  chain out { type filter hook output priority 0; ip daddr @far drop; }
}`

export async function makeMachines(machines: readonly Machine[]): Promise<void> {
  await run('ip', ['link', 'add', BRIDGE, 'type', 'bridge'])
  await run('ip', ['address', 'add', `${CALLERS}/24`, 'dev', BRIDGE])
  await run('ip', ['link', 'set', BRIDGE, 'up'])
  for (const { name, address } of machines) {
    await run('ip', ['netns', 'add', name])
    await run('ip', ['link', 'add', name, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name])
    await run('ip', ['link', 'set', name, 'master', BRIDGE, 'up'])
    await run('ip', ['-n', name, 'address', 'add', `${address}/24`, 'dev', 'eth0'])
    await run('ip', ['-n', name, 'link', 'set', 'lo', 'up'])
    await run('ip', ['-n', name, 'link', 'set', 'eth0', 'up'])
    await inside(name, 'nft', CUTS)
  }
}

/** Their programs have ended before. */
export async function removeMachines(machines: readonly Machine[]): Promise<void> {
  for (const { name } of machines) await run('ip', ['netns', 'del', name])
  await run('ip', ['link', 'del', BRIDGE])
}

/** From now on this machine hears nothing of these addresses, and they nothing of it. */
export async function cut({ name }: Machine, from: readonly string[]): Promise<void> {
  await inside(name, 'nft', `add element inet cuts far { ${from.join(', ')} }`)
}

/** All cuts of it end. */
export async function mend({ name }: Machine): Promise<void> {
  await inside(name, 'nft', 'flush set inet cuts far')
}

/** Its cable is pulled, or put back. */
export async function setLink({ name }: Machine, state: 'up' | 'down'): Promise<void> {
  await run('ip', ['link', 'set', name, state])
}

async function inside(name: string, program: 'nft', text: string): Promise<void> {
  await run('ip', ['netns', 'exec', name, program, text])
}

/** A disk of that size. */
export async function mountDisk(directory: string, mebibytes: number): Promise<void> {
  await run('mount', ['-t', 'tmpfs', '-o', `size=${mebibytes}m`, 'tmpfs', directory])
}

export async function unmountDisk(directory: string): Promise<void> {
  await run('umount', ['-l', directory])
}
