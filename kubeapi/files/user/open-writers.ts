/** Whether some process still has a file open for writing, as far as /proc lets us see. */
import { readFileSync, readdirSync, readlinkSync, realpathSync } from 'node:fs'

/**
 * True only when a writer is seen. Processes of other users (unless root) and of other PID namespaces stay
 * invisible, so false means "as far as we know". inotify's own close event is not to be had in Node.
 */
export function isOpenForWriting(path: string): boolean {
  try {
    const real = realpathSync(path)
    return readdirSync('/proc').some((name) => /^\d+$/.test(name) && processWrites(name, real))
  } catch {
    return false
  }
}

function processWrites(pid: string, real: string): boolean {
  try {
    return readdirSync(`/proc/${pid}/fd`).some((fd) => descriptorWrites(pid, fd, real))
  } catch {
    // It ended meanwhile, or belongs to somebody else.
    return false
  }
}

function descriptorWrites(pid: string, fd: string, real: string): boolean {
  try {
    if (readlinkSync(`/proc/${pid}/fd/${fd}`) !== real) return false
    const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/${pid}/fdinfo/${fd}`, 'utf8'))?.[1]
    // The two lowest bits of the open flags: 0 is read only.
    return flags !== undefined && (Number.parseInt(flags, 8) & 3) !== 0
  } catch {
    return false
  }
}
