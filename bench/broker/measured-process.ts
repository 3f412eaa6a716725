/** The processor time and the memory of a process, by the kernel. */
import { readFileSync } from 'node:fs'

const MB = 1_000_000
/** The unit of /proc/PID/stat: USER_HZ, which is 100 on Linux. */
const TICK_MS = 10

export function cpuMs(pid: number): number {
  const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS
}

/** `VmRSS` is the present memory, `VmHWM` the most so far. */
export function residentMb(pid: number, what: 'VmRSS' | 'VmHWM'): number {
  const text = readFileSync(`/proc/${pid}/status`, 'utf8')
  return (Number(new RegExp(`${what}:\\s+(\\d+)`).exec(text)?.[1]) * 1024) / MB
}

/** Lets the process run only this share of the time, until the returned function is called. */
export function slowed(pid: number, share: number): () => void {
  const PERIOD_MS = 50
  let on: ReturnType<typeof setTimeout>
  const send = (signal: 'SIGSTOP' | 'SIGCONT'): void => {
    try {
      process.kill(pid, signal)
    } catch {
      clearInterval(timer)
    }
  }
  const period = (): void => {
    send('SIGCONT')
    on = setTimeout(() => send('SIGSTOP'), PERIOD_MS * share)
  }
  const timer = setInterval(period, PERIOD_MS)
  return () => {
    clearInterval(timer)
    clearTimeout(on)
    send('SIGCONT')
  }
}
