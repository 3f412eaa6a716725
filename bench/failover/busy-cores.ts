/** Programs that leave no core idle: what else runs has to share with them, as on a machine that other work keeps busy. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'

/** As many as this machine has cores for: two. */
const PROGRAMS = 2
/** Longer than any measure. They end by themselves after it, and with whoever started them. */
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

/** Burns both cores while `story` goes on, and stops when it ends, however it does. */
export async function withBusyCores<T>(story: () => Promise<T>): Promise<T> {
  const programs = Array.from({ length: PROGRAMS }, () =>
    // Each with a session of its own, as a service has one: the kernel shares processors among sessions first, and the
    // callers are in that of the measure.
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
