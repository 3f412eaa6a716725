/** What the kernel says about a process: processor time and memory. */
import { readFileSync } from 'node:fs'

const MB = 1_000_000
/** Of /proc/PID/stat: USER_HZ, which is 100 on Linux. */
const TICK_MS = 10

export function cpuMs(pid: number): number {
  const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS
}

/** `VmRSS` now, `VmHWM` at most. */
export function residentMb(pid: number, what: 'VmRSS' | 'VmHWM'): number {
  const text = readFileSync(`/proc/${pid}/status`, 'utf8')
  return (Number(new RegExp(`${what}:\\s+(\\d+)`).exec(text)?.[1]) * 1024) / MB
}

/** Lets it run this share of the time only, until the function given back is called. */
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
