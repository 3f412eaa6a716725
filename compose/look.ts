/** Reads the state of this machine for commands, without changing it. */
import { addressesHere } from '../kernel/look/look.ts'
import { runCommand } from '../kernel/kernel.ts'

export { type HostLook, type HostTrouble, lookAtHost } from '../kernel/look/look.ts'

/** All addresses of this machine. Rejects only after the signal. */
export function ownAddresses(timeoutMs: number, signal: AbortSignal): Promise<readonly string[]> {
  return addressesHere({ run: runCommand, timeoutMs, signal })
}

// The commands whose output about this machine's kernel and services goes into a bundle. They only read, and no output
// contains a secret key.

interface KernelQuestion {
  readonly name: string
  readonly tool: string
  readonly args: readonly string[]
  readonly keeps: 'beginning' | 'end'
}

const LOG_LINES = 5000

/** `wg show all dump` would include private and preshared keys. */
const WIREGUARD = [
  'public-key',
  'listen-port',
  'fwmark',
  'peers',
  'endpoints',
  'allowed-ips',
  'latest-handshakes',
  'transfer',
]

export const KERNEL_QUESTIONS: readonly KernelQuestion[] = [
  { name: 'kernel/nft.json', tool: 'nft', args: ['-j', 'list', 'ruleset'], keeps: 'beginning' },
  { name: 'kernel/addresses.json', tool: 'ip', args: ['-j', '-d', 'address', 'show'], keeps: 'beginning' },
  { name: 'kernel/links.json', tool: 'ip', args: ['-j', '-d', '-s', 'link', 'show'], keeps: 'beginning' },
  ...['-4', '-6'].flatMap((family): KernelQuestion[] => [
    {
      name: `kernel/routes${family}.json`,
      tool: 'ip',
      args: ['-j', '-d', family, 'route', 'show', 'table', 'all'],
      keeps: 'beginning',
    },
    { name: `kernel/rules${family}.json`, tool: 'ip', args: ['-j', '-d', family, 'rule', 'show'], keeps: 'beginning' },
    { name: `kernel/neighbours${family}.json`, tool: 'ip', args: ['-j', family, 'neigh', 'show'], keeps: 'beginning' },
  ]),
  { name: 'kernel/next-hops.json', tool: 'ip', args: ['-j', '-d', 'nexthop', 'show'], keeps: 'beginning' },
  ...WIREGUARD.map((what): KernelQuestion => ({
    name: `kernel/wg-${what}.txt`,
    tool: 'wg',
    args: ['show', 'all', what],
    keeps: 'beginning',
  })),
  {
    name: 'logs/journal.txt',
    tool: 'journalctl',
    args: ['--no-pager', '--quiet', '--output=short-iso', `--lines=${LOG_LINES}`, '--unit=sealane*'],
    keeps: 'end',
  },
]

/** The output of the tool. Throws an error with the tool's message if it fails. */
export async function askKernel(
  { tool, args }: KernelQuestion,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<string> {
  const { code, stdout, stderr } = await runCommand(tool, args, { signal, timeoutMs })
  if (code !== 0) throw new Error(`${[tool, ...args].join(' ')}: ${stderr.trim() || `exit code ${code}`}`)
  return stdout
}
