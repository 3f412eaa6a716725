/** `sealane`: reads the command line, runs one command, sets the exit code: 0 done, 1 failed, 2 wrong usage. */
import { runProcess } from '../runtime/runtime.ts'

// The reader may close before all is written: `sealane show services | head -1`.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error
})

await runProcess('sealane', async (signal) => {
  // Not before signals are heard: process 1 of a container, which this is in a pod, never sees one that comes earlier,
  // and is killed at the end of its grace period.
  const { runCommandLine } = await import('./program.ts')
  return runCommandLine(process.argv.slice(2), signal)
})
