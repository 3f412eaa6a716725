/**
 * Refuses paths whose reading may never end, before they are opened: a named pipe without a writer keeps the process from
 * its end, even after a signal, because a thread waits in the system's open(2).
 */
import { type Stats, statSync } from 'node:fs'

/** What this process has open already, as with `<(command)` of a shell: somebody writes there, or has ended. */
const OPEN_ALREADY = /^\/(dev\/(fd\/\d+|stdin)|proc\/(self|\d+)\/fd\/\d+)$/

/**
 * For a file that is then read whole. Throws an Error with the path and what is there instead of a file, or the system's
 * error, such as that of a missing file. A pipe that the process has open passes.
 */
export function checkReadable(path: string): void {
  const found = statSync(path)
  if (found.isFile() || (found.isFIFO() && OPEN_ALREADY.test(path))) return
  throw new Error(`expected a regular file, got ${kindName(found)}: '${path}'`)
}

/** What is at a path, in words. */
export function kindName(found: Stats): string {
  if (found.isFile()) return 'a file'
  if (found.isDirectory()) return 'a folder'
  if (found.isFIFO()) return 'a named pipe'
  if (found.isSocket()) return 'a socket'
  return 'a device'
}
