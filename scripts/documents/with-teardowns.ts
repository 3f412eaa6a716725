/** Runs what tests also use, outside of a test. */

/** What the support of tests takes instead of a whole test. */
export interface Teardowns {
  teardown(clean: () => unknown): void
}

/** Runs `work`, and then what it left to clean up, the last first, also if it fails. */
export async function withTeardowns<T>(work: (t: Teardowns) => Promise<T>): Promise<T> {
  const cleanups: (() => unknown)[] = []
  try {
    return await work({ teardown: (clean) => void cleanups.push(clean) })
  } finally {
    for (const clean of cleanups.reverse()) await clean()
  }
}
