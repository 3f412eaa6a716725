/**
 * Which process has a UDP port of this network namespace, in words: a user whose port is taken has to know what to end.
 */
import { readFile, readdir, readlink } from 'node:fs/promises'
import { basename } from 'node:path'
import { KernelError } from './errors.ts'

const MAX_NAMED = 3
const MAX_NAME = 40

/** Another process has the port; the message says which. */
export class PortTakenError extends Error {
  readonly reason = 'PortTaken'
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super(message, options)
    this.name = 'PortTakenError'
  }
}

/**
 * `UDP port 4500 is taken by dnsmasq (process 812)`. Says so where none of the processes that are seen from here has
 * it: it may be in another container, or be a device of the kernel. Never rejects.
 */
export async function describePortHolders(port: number): Promise<string> {
  const what = `UDP port ${port} is taken by`
  try {
    const sockets = await socketsAt(port)
    const [named, others] = split(await holdersOf(sockets))
    if (named.length > 0) return `${what} ${named.join(', ')}${others === 0 ? '' : ` and ${others} more`}`
  } catch {
    // Nothing can be read of it.
  }
  return `${what} a process that is not seen from here, or by a device of the kernel: ss -aunp sport = :${port} on the node tells more`
}

/** The same error, which says who has the port, where it is about one that is taken; else the error as it is. */
export async function namingPortHolders(error: unknown, port: number): Promise<unknown> {
  if (!(error instanceof KernelError) || error.code !== 'EADDRINUSE') return error
  const taken = new PortTakenError(await describePortHolders(port), { cause: error })
  return new KernelError('EADDRINUSE', error.operation, taken.message, { cause: taken })
}

function split(all: readonly string[]): readonly [named: readonly string[], others: number] {
  return [all.slice(0, MAX_NAMED), Math.max(0, all.length - MAX_NAMED)]
}

/** Inode numbers of the sockets that are bound to the port. */
async function socketsAt(port: number): Promise<ReadonlySet<string>> {
  const tables = await Promise.all(['udp', 'udp6'].map((name) => readTable(`/proc/self/net/${name}`)))
  return new Set(tables.flatMap((text) => parseUdpTable(text, port)))
}

/** Empty where there is none: a kernel without IPv6 has no `udp6`. */
function readTable(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '')
}

/** Inodes of a table as /proc/net/udp is: `12: 0100007F:1194 00000000:0000 07 … uid timeout inode …`. */
export function parseUdpTable(text: string, port: number): readonly string[] {
  const wanted = port.toString(16).toUpperCase().padStart(4, '0')
  return text
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter(([, local]) => local?.endsWith(`:${wanted}`) === true)
    .flatMap((fields) => fields[9] ?? [])
}

async function holdersOf(sockets: ReadonlySet<string>): Promise<readonly string[]> {
  const pids = (await readdir('/proc')).filter((entry) => /^\d+$/.test(entry)).sort((a, b) => Number(a) - Number(b))
  const holders: string[] = []
  for (const pid of pids) {
    if (await holdsOne(pid, sockets)) holders.push(`${await nameOf(pid)} (process ${pid})`)
  }
  return holders
}

async function holdsOne(pid: string, sockets: ReadonlySet<string>): Promise<boolean> {
  try {
    const files = await readdir(`/proc/${pid}/fd`)
    const links = await Promise.all(files.map((file) => readlink(`/proc/${pid}/fd/${file}`).catch(() => '')))
    return links.some((link) => sockets.has(/^socket:\[(\d+)\]$/.exec(link)?.[1] ?? ''))
  } catch {
    // It has ended, or may not be looked at.
    return false
  }
}

/** The program's own name, not its arguments: they may hold what nobody else is to read. */
async function nameOf(pid: string): Promise<string> {
  const read = (file: string): Promise<string> => readFile(`/proc/${pid}/${file}`, 'utf8').catch(() => '')
  const [program = ''] = (await read('cmdline')).split('\0')
  const name = basename(program) === '' ? (await read('comm')).trim() : basename(program)
  return /^[\w.:@+-]+$/.test(name) ? name.slice(0, MAX_NAME) : JSON.stringify(name.slice(0, MAX_NAME))
}
