/** What a person sees while the demo runs, and the table or the JSON at its end. */

export interface CheckResult {
  readonly name: string
  readonly ok: boolean
  readonly detail: string
  readonly ms: number
}

export interface Report {
  step(text: string): void
  check(result: CheckResult): void
  /** Prints the outcome; gives the exit code. */
  finish(failure?: string): number
}

export function personReport(out: NodeJS.WritableStream): Report {
  const results: CheckResult[] = []
  const started = performance.now()
  const elapsed = (): string => `${((performance.now() - started) / 1000).toFixed(1).padStart(5)} s`
  return {
    step: (text) => out.write(`${elapsed()}  ${text}\n`),
    check: (result) => {
      results.push(result)
      out.write(`${elapsed()}  ${result.ok ? '  ok ' : 'FAIL '} ${result.name}: ${result.detail}\n`)
    },
    finish: (failure) => {
      const failed = results.filter((result) => !result.ok)
      out.write(`\n${table(results)}\n`)
      if (failure !== undefined) out.write(`stopped early: ${failure}\n`)
      out.write(`${results.length - failed.length} passed, ${failed.length} failed, ${elapsed().trim()}\n`)
      return failed.length > 0 || failure !== undefined ? 1 : 0
    },
  }
}

/** One JSON object on `out`; the live account goes to `account`. */
export function jsonReport(out: NodeJS.WritableStream, account: NodeJS.WritableStream): Report {
  const results: CheckResult[] = []
  return {
    step: (text) => account.write(`${text}\n`),
    check: (result) => void results.push(result),
    finish: (failure) => {
      const ok = failure === undefined && results.every((result) => result.ok)
      const body = { ok, checks: results, ...(failure === undefined ? {} : { failure }) }
      out.write(`${JSON.stringify(body)}\n`)
      return ok ? 0 : 1
    },
  }
}

function table(results: readonly CheckResult[]): string {
  const width = Math.max(...results.map((result) => result.name.length), 5)
  const rows = results.map(
    (r) => `${r.ok ? 'ok  ' : 'FAIL'}  ${r.name.padEnd(width)}  ${String(Math.round(r.ms)).padStart(6)} ms`,
  )
  return [`      ${'check'.padEnd(width)}      time`, ...rows].join('\n')
}
