/**
 * The `sealane` command: reads the command line, runs one command and sets the exit code: 0 for success, 1 for failure,
 * 2 for wrong usage.
 */
import { runProcess } from '../runtime/runtime.ts'

// The reader may close the pipe before all is written, as in `sealane show services | head -1`, and a terminal may be
// closed (EIO) while the command still removes what it has made.
const CLOSED: ReadonlySet<string | undefined> = new Set(['EPIPE', 'EIO'])

// An answer that does not fit on a full disk fails the command at its end, which removes what it has made before.
let unwritten: NodeJS.ErrnoException | undefined
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (!CLOSED.has(error.code)) unwritten ??= error
})
// There is no place left to say so.
process.stderr.on('error', () => undefined)
process.once('exit', () => {
  if (unwritten === undefined) return
  process.stderr.write(`sealane: the answer could not be written: ${unwritten.message}\n`)
  if ((process.exitCode ?? 0) === 0) process.exitCode = 1
})

await runProcess('sealane', async (signal) => {
  // The program is loaded only after the signal handlers are installed. In a pod this is process 1, for which the
  // kernel ignores signals without a handler, so an earlier SIGTERM is lost and the kubelet kills the container at the
  // end of its grace period.
  const { runCommandLine } = await import('./program.ts')
  return runCommandLine(process.argv.slice(2), signal)
})
