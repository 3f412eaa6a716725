/**
 * Waits until this process has no file operation in progress, so that a fake clock does not run ahead of code that
 * reads files. `process.getActiveResourcesInfo()` leaves out `readFile` and the closing of a handle; async_hooks sees
 * both.
 */
import { createHook } from 'node:async_hooks'
import { setImmediate as turnOfTheLoop } from 'node:timers/promises'

/** How often the event loop must turn at least, so that code after an operation can begin the next one. */
const QUIET_TURNS = 2
const DEADLINE_MS = 10_000

const inFlight = new Set<number>()
const end = (id: number): void => void inFlight.delete(id)
const init = (id: number, type: string): void => {
  if (/^(FSREQ|FILEHANDLECLOSEREQ)/u.test(type)) inFlight.add(id)
}
createHook({ init, after: end, destroy: end, trackPromises: false }).enable()

/** Resolves once no file is being read, written or closed. */
export async function filesAtRest(): Promise<void> {
  const endMs = performance.now() + DEADLINE_MS
  for (let quiet = 0; quiet < QUIET_TURNS; quiet = inFlight.size === 0 ? quiet + 1 : 0) {
    if (performance.now() > endMs) throw new Error(`${inFlight.size} file operations are still under way`)
    await turnOfTheLoop()
  }
}
