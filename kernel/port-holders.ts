/**
 * Names the processes that hold a UDP port of this network namespace, so that users know which process to end if a port
 * is taken.
 */
import { readFile, readdir, readlink } from 'node:fs/promises'
import { basename } from 'node:path'
import { KernelError } from './errors.ts'

const MAX_NAMED = 3
const MAX_NAME = 40

/** Another process holds the port. The message names it. */
export class PortTakenError extends Error {
  readonly reason = 'PortTaken'
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super(message, options)
    this.name = 'PortTakenError'
  }
}

/**
 * Returns `UDP port 4500 is taken by dnsmasq (process 812)`. If no visible process holds the port, the text says so:
 * the process may be in another container, or a device of the kernel may hold it. Never rejects.
 */
export async function describePortHolders(port: number): Promise<string> {
  const what = `UDP port ${port} is taken by`
  try {
    const sockets = await socketsAt(port)
    const [named, others] = split(await holdersOf(sockets))
    if (named.length > 0) return `${what} ${named.join(', ')}${others === 0 ? '' : ` and ${others} more`}`
  } catch {
    // Without the tables, the text names no process.
  }
  return `${what} a process that is not visible from here, or by a device of the kernel: run "ss -aunp sport = :${port}" on the node`
}

/** Returns an EADDRINUSE error again with the processes that hold the port. Returns any other error unchanged. */
export async function namingPortHolders(error: unknown, port: number): Promise<unknown> {
  if (!(error instanceof KernelError) || error.code !== 'EADDRINUSE') return error
  const taken = new PortTakenError(await describePortHolders(port), { cause: error })
  return new KernelError('EADDRINUSE', error.operation, taken.message, { cause: taken })
}

function split(all: readonly string[]): readonly [named: readonly string[], others: number] {
  return [all.slice(0, MAX_NAMED), Math.max(0, all.length - MAX_NAMED)]
}

/** Returns the inode numbers of the sockets that are bound to the port. */
async function socketsAt(port: number): Promise<ReadonlySet<string>> {
  const tables = await Promise.all(['udp', 'udp6'].map((name) => readTable(`/proc/self/net/${name}`)))
  return new Set(tables.flatMap((text) => parseUdpTable(text, port)))
}

/** Returns '' if the file does not exist: a kernel without IPv6 has no `udp6`. */
function readTable(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '')
}

/**
 * Returns the inodes of a table in the format of /proc/net/udp:
 * `12: 0100007F:1194 00000000:0000 07 … uid timeout inode …`.
 */
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
    // The process has ended, or this process may not read its files.
    return false
  }
}

/** Returns the name of the program without its arguments, which may contain secrets. */
async function nameOf(pid: string): Promise<string> {
  const read = (file: string): Promise<string> => readFile(`/proc/${pid}/${file}`, 'utf8').catch(() => '')
  const [program = ''] = (await read('cmdline')).split('\0')
  const name = basename(program) === '' ? (await read('comm')).trim() : basename(program)
  return /^[\w.:@+-]+$/.test(name) ? name.slice(0, MAX_NAME) : JSON.stringify(name.slice(0, MAX_NAME))
}
