/**
 * What a test made goes when its process ends, be it by Ctrl-C or by a runner whose patience is over. Only SIGKILL
 * leaves it. Programs go before folders: they write there.
 */
type Kind = 'programs' | 'folders'

const SIGNALS = { SIGINT: 2, SIGTERM: 15, SIGHUP: 1 } as const

const cleanups: Readonly<Record<Kind, Set<() => void>>> = { programs: new Set(), folders: new Set() }

/** Runs `cleanup` when this process ends; gives what takes that back. */
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
    // The others shall have their turn.
    process.stderr.write(`${String(error)}\n`)
  }
}
