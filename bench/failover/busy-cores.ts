/** Programs that leave no core idle: all other processes must share the cores with them, as on a busy machine. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'

/** As many programs as this machine has cores: two. */
const PROGRAMS = 2
/**
 * This is longer than any measurement. The programs end by themselves after it, and with the process that started them.
 */
const MOST_MS = 3_600_000

const BURN = `
process.stdin.on('data', () => undefined).on('end', () => process.exit(0))
process.stdout.write('burning')
const endsMs = performance.now() + ${MOST_MS}
const burn = () => {
  for (const untilMs = performance.now() + 50; performance.now() < untilMs; );
  if (performance.now() >= endsMs) process.exit(0)
  setImmediate(burn)
}
burn()
`

/** Keeps both cores busy while `story` runs, and always stops afterwards. */
export async function withBusyCores<T>(story: () => Promise<T>): Promise<T> {
  const programs = Array.from({ length: PROGRAMS }, () =>
    // Each program has a session of its own, as a service has. The kernel shares processors among sessions first, and
    // the callers are in the session of the benchmark.
    spawn(process.execPath, ['-e', BURN], { detached: true, stdio: ['pipe', 'pipe', 'inherit'] }),
  )
  try {
    await Promise.all(programs.map((one) => Promise.race([once(one.stdout, 'data'), ended(one)])))
    const result = await story()
    if (programs.some(({ exitCode, signalCode }) => exitCode !== null || signalCode !== null))
      throw new Error('a program that burns a core ended before the measure did')
    return result
  } finally {
    for (const one of programs) one.kill('SIGKILL')
  }
}

async function ended(one: ChildProcess): Promise<never> {
  const [code] = (await once(one, 'exit')) as [number | null]
  throw new Error(`a program that burns a core ended with ${code ?? 'a signal'}`)
}
