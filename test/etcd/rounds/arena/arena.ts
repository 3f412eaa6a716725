/**
 * The machines are network namespaces on one bridge. Their clients run in the namespace of this process:
 *
 *   e0 e1 e2   etcd          b0 b1 b2   brokers
 *    └──┴──┴────── bridge ────┴──┴──┘
 *                    │ 10.77.0.1: members and the operator
 *
 * Use it inside a private namespace (inPrivateNetns()), whose end removes all machines.
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const run = promisify(execFile)
const BRIDGE = 'hub'
export const CALLERS = '10.77.0.1'

export interface Machine {
  /** The name of the machine and of its network namespace. */
  readonly name: string
  readonly address: string
}

export const ETCD_MACHINES: readonly Machine[] = [0, 1, 2].map((i) => ({ name: `e${i}`, address: `10.77.0.1${i}` }))
export const BROKER_MACHINES: readonly Machine[] = [0, 1, 2].map((i) => ({ name: `b${i}`, address: `10.77.0.2${i}` }))

/** The rules drop the traffic of a cut in both directions and tell neither side. */
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

/** Removes the machines. Their programs must have ended before. */
export async function removeMachines(machines: readonly Machine[]): Promise<void> {
  for (const { name } of machines) await run('ip', ['netns', 'del', name])
  await run('ip', ['link', 'del', BRIDGE])
}

/** Blocks all traffic between this machine and these addresses. */
export async function cut({ name }: Machine, from: readonly string[]): Promise<void> {
  await inside(name, 'nft', `add element inet cuts far { ${from.join(', ')} }`)
}

/** Ends all cuts of this machine. */
export async function mend({ name }: Machine): Promise<void> {
  await inside(name, 'nft', 'flush set inet cuts far')
}

/** Sets the link of this machine up or down. */
export async function setLink({ name }: Machine, state: 'up' | 'down'): Promise<void> {
  await run('ip', ['link', 'set', name, state])
}

async function inside(name: string, program: 'nft', text: string): Promise<void> {
  await run('ip', ['netns', 'exec', name, program, text])
}

export async function mountDisk(directory: string, mebibytes: number): Promise<void> {
  await run('mount', ['-t', 'tmpfs', '-o', `size=${mebibytes}m`, 'tmpfs', directory])
}

export async function unmountDisk(directory: string): Promise<void> {
  await run('umount', ['-l', directory])
}
