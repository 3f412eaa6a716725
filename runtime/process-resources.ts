/**
 * CPU priority, heap and open files of a process.
 *
 * If CPUs are scarce, the kernel prefers the process with the lower nice value. Each thread has its own nice value,
 * which its child processes inherit. If the kernel shares CPUs among sessions first (autogroup), those values count
 * only within a session, and the session has a value as well (sched(7)). In a container all of it counts only within
 * the container: among containers, CPUs are shared by their requests.
 */
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { getPriority, setPriority } from 'node:os'
import { performance } from 'node:perf_hooks'
import { setFlagsFromString } from 'node:v8'
import { type Clock, unlessAborted } from '../reconcile/reconcile.ts'
import { messageOf } from './errors.ts'

/** Nine times the weight of a process with nice 0: enough, and less than that of the kernel's own threads. */
const FAVOURED = -10
const OWN_SESSION = '/proc/self/autogroup'

export interface ProcessorPriority {
  readonly nice: number
  /** Why the value differs from the requested one. Absent if it does not. */
  readonly why?: string
}

/** This process as the kernel shows it. All methods except threads() and leadsSession() throw the kernel's errors. */
export interface Processes {
  threads(): readonly number[]
  /**
   * Whether this process is the session leader: the session then contains only this process and those it has started.
   */
  leadsSession(): boolean
  nice(): number
  setNice(thread: number, nice: number): void
  setSessionNice(nice: number): void
}

export const OWN_PROCESS: Processes = {
  threads: () => readdirSync('/proc/self/task').map(Number),
  leadsSession: () => {
    // The fields after the program's name, which may contain blanks and brackets: state, parent, group, session.
    const [, , , session] = (readFileSync('/proc/self/stat', 'utf8').split(') ').at(-1) ?? '').split(' ')
    return Number(session) === process.pid
  },
  nice: () => getPriority(),
  setNice: (thread, nice) => setPriority(thread, nice),
  setSessionNice: (nice) => writeFileSync(OWN_SESSION, String(nice)),
}

/**
 * Lowers the nice value of this process and of the processes that it starts from now on. A nice value that was set for
 * it stays, and without the permission the process continues unchanged. Never throws.
 */
export function favourProcess(own: Processes = OWN_PROCESS): ProcessorPriority {
  let nice = 0
  try {
    nice = own.nice()
    if (nice !== 0) return { nice, why: 'set by the parent process' }
    for (const thread of own.threads()) unlessGone(() => own.setNice(thread, FAVOURED))
    nice = own.nice()
    if (own.leadsSession()) unlessGone(() => own.setSessionNice(FAVOURED))
    return { nice }
  } catch (error) {
    const isRefused = REFUSALS.has(codeOf(error) ?? '')
    return { nice, why: isRefused ? 'CAP_SYS_NICE is missing' : messageOf(error) }
  }
}

/**
 * Gives the session of a program that this process has started the same autogroup value as its own. Without such a
 * value, or without the permission, the session stays unchanged. Never throws.
 */
export function favourStarted(pid: number): void {
  try {
    const [, nice] = /nice (-\d+)/.exec(readFileSync(OWN_SESSION, 'utf8')) ?? []
    if (nice !== undefined) writeFileSync(`/proc/${pid}/autogroup`, nice)
  } catch {
    // The kernel has no autogroup, the permission is missing, or the program has ended.
  }
}

const REFUSALS: ReadonlySet<string> = new Set(['EACCES', 'EPERM'])
/** The thread has ended, or the kernel has no autogroup. */
const GONE: ReadonlySet<string> = new Set(['ESRCH', 'ENOENT'])

function unlessGone(action: () => void): void {
  try {
    action()
  } catch (error) {
    if (!GONE.has(codeOf(error) ?? '')) throw error
  }
}

/** Returns the kernel's error name. Node has it in `info` if `code` only says that a system call failed. */
function codeOf(error: unknown): string | undefined {
  const { code, info } = error as { code?: string; info?: { code?: string } }
  return info?.code ?? code
}

// A heap that was large for a while keeps its pages, with live objects spread over them. V8 compacts it when its last
// few collections, which are minutes apart on an idle server, show little allocation, or when the process asks it to
// prefer size to speed. The process asks for that while it is mostly idle.

interface Heap {
  /** Share of the time since the last call in which the event loop was busy, 0 to 1. */
  busy(): number
  /** Whether future collections prefer size to speed. */
  preferSize(on: boolean): void
}

const LOOK_MS = 5000
const CALM = 0.2
const BUSY = 0.5

/** The heap of this process. */
export function ownHeap(): Heap {
  let before = performance.eventLoopUtilization()
  return {
    busy: () => {
      const now = performance.eventLoopUtilization()
      const { utilization } = performance.eventLoopUtilization(now, before)
      before = now
      return utilization
    },
    preferSize: (on) => setFlagsFromString(on ? '--optimize-for-size' : '--no-optimize-for-size'),
  }
}

/**
 * Runs until the signal is aborted. Prefers size once the event loop is busy for less than a fifth of the time, until
 * it is busy for half of it.
 */
export async function calmHeap(heap: Heap, clock: Clock, signal: AbortSignal): Promise<void> {
  let prefersSize = false
  while (await unlessAborted(clock.sleep(LOOK_MS, signal), signal)) {
    const busy = heap.busy()
    const wanted: boolean = prefersSize ? busy < BUSY : busy < CALM
    if (wanted !== prefersSize) heap.preferSize(wanted)
    prefersSize = wanted
  }
  if (prefersSize) heap.preferSize(false)
}

// The number of open files and sockets of this process, and their limit.

interface OpenFiles {
  readonly used: number
  readonly limit: number
}

/** Undefined if the system does not report the limit, or has none. */
export function openFiles(proc = '/proc/self'): OpenFiles | undefined {
  try {
    const limit = Number(/^Max open files\s+(\d+)/m.exec(readFileSync(`${proc}/limits`, 'utf8'))?.[1])
    if (Number.isNaN(limit)) return undefined
    // Listing the folder itself opens one.
    return { used: Math.max(0, readdirSync(`${proc}/fd`).length - 1), limit }
  } catch {
    return undefined
  }
}
