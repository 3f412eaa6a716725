/** `sealane`: reads the command line, runs one command, sets the exit code: 0 done, 1 failed, 2 wrong usage. */
import { runProcess } from '../runtime/run-process.ts'
import { buildProgram } from './program.ts'
import { parseWith } from './parse-command-line.ts'

// The reader may close before all is written: `sealane show services | head -1`.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error
})

await runProcess('sealane', (signal) => parseWith(buildProgram(signal), process.argv.slice(2)))
