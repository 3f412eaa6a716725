/** How many files and sockets this process has open, and how many it may have. */
import { readFileSync, readdirSync } from 'node:fs'

export interface OpenFiles {
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
