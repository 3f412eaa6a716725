/** One check with its time, reported whatever comes of it. */
import type { Report } from './report.ts'

export interface CheckOf<W> {
  readonly name: string
  /** Gives what was seen, in a few words; throws when it is not what it must be. */
  run(world: W): Promise<string>
}

export async function runCheck<W>(world: W, check: CheckOf<W>, report: Report): Promise<void> {
  const started = performance.now()
  const done = (ok: boolean, detail: string): void => {
    report.check({ name: check.name, ok, detail, ms: Math.round(performance.now() - started) })
  }
  try {
    done(true, await check.run(world))
  } catch (error) {
    done(false, (error as Error).message)
  }
}
