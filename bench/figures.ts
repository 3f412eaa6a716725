/** Summaries of samples, and the output of a benchmark. */

/** The nearest-rank percentile; `share` is 0 to 1. Throws RangeError without samples. */
export function percentile(samples: readonly number[], share: number): number {
  if (samples.length === 0) throw new RangeError('no samples')
  const sorted = [...samples].sort((a, b) => a - b)
  const rank = Math.max(1, Math.ceil(share * sorted.length))
  return sorted[rank - 1] ?? 0
}

export function median(samples: readonly number[]): number {
  return percentile(samples, 0.5)
}

export function round(value: number, digits = 2): number {
  return Number(value.toFixed(digits))
}

/** Prints one object on stdout with --json, and otherwise the text. */
export function progress(result: Readonly<Record<string, unknown>>, text: string): void {
  process.stdout.write(process.argv.includes('--json') ? `${JSON.stringify(result)}\n` : `${text}\n`)
}
