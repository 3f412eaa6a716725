/**
 * Names of network namespaces that say which process made them: `sl-<pid namespace>-<pid>-<start time>-<number>`. A
 * process that is killed cleans nothing up (the test runner does that to a test that takes too long), so whoever makes
 * namespaces next removes those of the dead.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, readdirSync, readlinkSync } from 'node:fs'

const FOLDER = '/run/netns'
const OWNED = /^(sl-[0-9a-z]+-([0-9]+)-[0-9a-z]+)-[0-9]+(?:-|$)/

let made = 0

/** A name, or a beginning of names, that no other process gives; what it names is removed once this process is dead. */
export function ownedNetnsName(): string {
  if (made === 0) sweepNetns()
  made += 1
  return `${owner(process.pid) ?? ''}-${made}`
}

/** Removes the namespaces of processes that are no more, with the processes in them, and gives their names. */
export function sweepNetns(): string[] {
  const left = orphanedNetns()
  left.forEach(removeNetns)
  return left
}

/** Names of the namespaces of processes that are no more. */
export function orphanedNetns(): string[] {
  const here = pidNamespace()
  return namedNetns().filter((name) => {
    const [, maker = '', pid = ''] = OWNED.exec(name) ?? []
    // It cannot be known here whether a process of another pid namespace lives.
    return maker.startsWith(`${here}-`) && owner(Number(pid)) !== maker
  })
}

/** All that are there, whoever made them. */
export function namedNetns(): string[] {
  return existsSync(FOLDER) ? readdirSync(FOLDER).sort() : []
}

/** Those that this process has made. */
export function ownNetns(): string[] {
  return namedNetns().filter((name) => OWNED.exec(name)?.[1] === owner(process.pid))
}

/** Ends the processes in it and removes it. Synchronous, so that it also works in an exit handler. */
export function removeNetns(name: string): void {
  for (const pid of tryIp('netns', 'pids', name).split('\n')) {
    if (pid !== '') kill(Number(pid))
  }
  tryIp('netns', 'del', name)
}

/** What names of that process begin with; undefined when there is no such process. */
function owner(pid: number): string | undefined {
  try {
    // The start time is field 22 of proc_pid_stat(5); the second field may contain spaces and parentheses.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return `${pidNamespace()}-${pid}-${Number(fields[19]).toString(36)}`
  } catch {
    return undefined
  }
}

function pidNamespace(): string {
  const inode = /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? ''
  return `sl-${Number(inode).toString(36)}`
}

/** Its output; nothing when it fails: the namespace was never made, or whoever else removes it was faster. */
function tryIp(...args: readonly string[]): string {
  const { status, stdout } = spawnSync('ip', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
  return status === 0 ? stdout : ''
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended by itself.
  }
}
