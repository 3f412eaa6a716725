/**
 * Where processors are scarce, the kernel gives one sooner to the process with the lower nice value. A thread has a nice
 * value of its own, which what it starts inherits. Where the kernel shares processors among sessions first (autogroup),
 * those values count within a session only, and the session has one as well (sched(7)). In a container, all of it counts
 * within the container: among those, processors are shared by what they request.
 */
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { getPriority, setPriority } from 'node:os'
import { performance } from 'node:perf_hooks'
import { setFlagsFromString } from 'node:v8'
import { type Clock, unlessAborted } from '../reconcile/reconcile.ts'
import { messageOf } from './errors.ts'

/** Nine times the weight of a process without: enough, and less than what the kernel's own threads have. */
const FAVOURED = -10
const OWN_SESSION = '/proc/self/autogroup'

export interface ProcessorPriority {
  readonly nice: number
  /** Why it is not another one. Absent: it is what was asked for. */
  readonly why?: string
}

/** This process, as the kernel shows it. All but threads() and leadsSession() throw what the kernel refuses. */
export interface Processes {
  threads(): readonly number[]
  /** The session began with this process: there is nothing in it but what this process has started. */
  leadsSession(): boolean
  nice(): number
  setNice(thread: number, nice: number): void
  setSessionNice(nice: number): void
}

/** The threads of this process, from /proc. */
export const OWN_PROCESS: Processes = {
  threads: () => readdirSync('/proc/self/task').map(Number),
  leadsSession: () => {
    // Behind the name of the program, which may have blanks and brackets: state, parent, group, session.
    const [, , , session] = (readFileSync('/proc/self/stat', 'utf8').split(') ').at(-1) ?? '').split(' ')
    return Number(session) === process.pid
  },
  nice: () => getPriority(),
  setNice: (thread, nice) => setPriority(thread, nice),
  setSessionNice: (nice) => writeFileSync(OWN_SESSION, String(nice)),
}

/**
 * Has the kernel favour this process and what it starts from now on. A nice value that somebody has chosen for it stays,
 * and where this process may not choose one, it goes on without. Never throws.
 */
export function favourProcess(own: Processes = OWN_PROCESS): ProcessorPriority {
  let nice = 0
  try {
    nice = own.nice()
    if (nice !== 0) return { nice, why: 'was started with it' }
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
 * A program that this process has started in a session of its own: the kernel favours that session as it does the one of
 * this process. Where it does not, or this process may not say so, it stays as it is. Never throws.
 */
export function favourStarted(pid: number): void {
  try {
    const [, nice] = /nice (-\d+)/.exec(readFileSync(OWN_SESSION, 'utf8')) ?? []
    if (nice !== undefined) writeFileSync(`/proc/${pid}/autogroup`, nice)
  } catch {
    // A kernel without priorities of sessions, no right to choose one, or the program has ended.
  }
}

const REFUSALS: ReadonlySet<string> = new Set(['EACCES', 'EPERM'])
/** A thread that has ended; a kernel that knows no priority of a session. */
const GONE: ReadonlySet<string> = new Set(['ESRCH', 'ENOENT'])

function unlessGone(action: () => void): void {
  try {
    action()
  } catch (error) {
    if (!GONE.has(codeOf(error) ?? '')) throw error
  }
}

/** The kernel's own name of an error. Node has it in `info` where `code` says only that the system refused. */
function codeOf(error: unknown): string | undefined {
  const { code, info } = error as { code?: string; info?: { code?: string } }
  return info?.code ?? code
}

// A heap that was large for a while keeps its pages, with what lives spread thinly over them. V8 moves that together
// when its last few collections, which an idle server has minutes apart, say that little is allocated, or when the
// process asks it to prefer size to speed. The process asks while it has little to do.

interface Heap {
  /** Share of the time since the last look in which the event loop had work, 0 to 1. */
  busy(): number
  /** Of collections from now on. */
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

/** Until the signal. Size is preferred once the event loop works for less than a fifth of the time, up to a half. */
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

// How many files and sockets this process has open, and how many it may have.

interface OpenFiles {
  readonly used: number
  readonly limit: number
}

/** Undefined where the system does not say, or sets no limit. */
export function openFiles(proc = '/proc/self'): OpenFiles | undefined {
  try {
    const limit = Number(/^Max open files\s+(\d+)/m.exec(readFileSync(`${proc}/limits`, 'utf8'))?.[1])
    if (Number.isNaN(limit)) return undefined
    // The look itself has one open.
    return { used: Math.max(0, readdirSync(`${proc}/fd`).length - 1), limit }
  } catch {
    return undefined
  }
}
