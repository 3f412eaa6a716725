/** A process that raises its own priority, and prints the priority that it then has, as JSON. */
import { execFileSync, spawn } from 'node:child_process'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { getPriority, setPriority } from 'node:os'
import { favourProcess, favourStarted } from '../../../runtime/process-resources.ts'

const NICE = 'process.stdout.write(String(os.getPriority()))'

function sessionOf(process: number | string | undefined): string | undefined {
  const path = `/proc/${process}/autogroup`
  return existsSync(path) ? readFileSync(path, 'utf8').trim() : undefined
}

// The tests may run with a priority of their own.
for (const thread of readdirSync('/proc/self/task')) setPriority(Number(thread), 0)
const priority = favourProcess()
const other = spawn('sleep', ['60'], { detached: true, stdio: 'ignore' })
favourStarted(other.pid ?? NaN)
const seen = {
  priority,
  threads: [...new Set(readdirSync('/proc/self/task').map((thread) => getPriority(Number(thread))))],
  started: Number(execFileSync(process.execPath, ['-e', NICE], { encoding: 'utf8' })),
  session: sessionOf('self'),
  otherSession: sessionOf(other.pid),
}
other.kill('SIGKILL')
process.stdout.write(JSON.stringify(seen))
