/**
 * Names of network namespaces that tell which process made them: `sl-<pid namespace>-<pid>-<start time>-<number>`. A
 * killed process cleans nothing up (the test runner kills a test that takes too long), so the next process that makes
 * namespaces removes those of dead ones.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, readdirSync, readlinkSync } from 'node:fs'

const FOLDER = '/run/netns'
const OWNED = /^(sl-[0-9a-z]+-([0-9]+)-[0-9a-z]+)-[0-9]+(?:-|$)/

let made = 0

/**
 * A name, or the beginning of names, that no other process makes; a namespace of that name is removed once this process
 * is dead.
 */
export function ownedNetnsName(): string {
  if (made === 0) sweepNetns()
  made += 1
  return `${owner(process.pid) ?? ''}-${made}`
}

/** Removes the namespaces of processes that have ended, with the processes in them, and returns their names. */
export function sweepNetns(): string[] {
  const left = orphanedNetns()
  left.forEach(removeNetns)
  return left
}

/** The names of the namespaces of processes that have ended. */
export function orphanedNetns(): string[] {
  const here = pidNamespace()
  return namedNetns().filter((name) => {
    const [, maker = '', pid = ''] = OWNED.exec(name) ?? []
    // This process cannot know whether a process of another pid namespace lives.
    return maker.startsWith(`${here}-`) && owner(Number(pid)) !== maker
  })
}

/** The names of all namespaces, whichever process made them. */
export function namedNetns(): string[] {
  return existsSync(FOLDER) ? readdirSync(FOLDER).sort() : []
}

/** The names of those that this process has made. */
export function ownNetns(): string[] {
  return namedNetns().filter((name) => OWNED.exec(name)?.[1] === owner(process.pid))
}

/** Ends the processes in the namespace and removes it. It is synchronous, so that it also works in an exit handler. */
export function removeNetns(name: string): void {
  for (const pid of tryIp('netns', 'pids', name).split('\n')) {
    if (pid !== '') kill(Number(pid))
  }
  tryIp('netns', 'del', name)
}

/** The beginning of that process's names; undefined if there is no such process. */
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

/**
 * The output of ip, which is empty if it fails: the namespace was never made, or another process has removed it first.
 */
function tryIp(...args: readonly string[]): string {
  const { status, stdout } = spawnSync('ip', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
  return status === 0 ? stdout : ''
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // The process has ended by itself.
  }
}
