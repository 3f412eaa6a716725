/**
 * Cleans up what a test made when its process ends, whether by Ctrl-C or because a runner's time is over. Only SIGKILL
 * prevents it. Programs are ended before folders are removed, because they write into them.
 */
type Kind = 'programs' | 'folders'

const SIGNALS = { SIGINT: 2, SIGTERM: 15, SIGHUP: 1 } as const

const cleanups: Readonly<Record<Kind, Set<() => void>>> = { programs: new Set(), folders: new Set() }

/** Runs `cleanup` when this process ends. Returns the function that cancels it. */
export function atExit(kind: Kind, cleanup: () => void): () => void {
  watchOver()
  cleanups[kind].add(cleanup)
  return () => cleanups[kind].delete(cleanup)
}

let watching = false
function watchOver(): void {
  if (watching) return
  watching = true
  process.on('exit', () => [...cleanups.programs, ...cleanups.folders].forEach(tryOut))
  for (const [signal, number] of Object.entries(SIGNALS)) process.once(signal, () => process.exit(128 + number))
}

function tryOut(cleanup: () => void): void {
  try {
    cleanup()
  } catch (error) {
    // The remaining clean-ups must still run.
    process.stderr.write(`${String(error)}\n`)
  }
}
