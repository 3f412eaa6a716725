/** Keeps secrets out of log lines, whatever is handed to the logger. */

const SECRET_KEYS = /^(secret|token|private_?key|key|preshared_?key|password|authorization)$/i
const MAX_DEPTH = 6

/**
 * A copy in which the value of every field named secret, token, privateKey or key is '[redacted]', at any depth.
 * Errors become {type, message, code, cause}; bigints and bytes become text.
 */
export function redact(value: unknown, depth = 0): unknown {
  if (typeof value === 'bigint') return value.toString()
  if (typeof value !== 'object' || value === null) return value
  if (depth >= MAX_DEPTH) return '[too deep]'
  if (value instanceof Error) return describeError(value, depth)
  if (value instanceof Uint8Array) return `[${value.length} bytes]`
  if (value instanceof Date) return value.toISOString()
  if (value instanceof Set || value instanceof Map) return redact([...(value as Iterable<unknown>)], depth)
  if (Array.isArray(value)) return value.map((item) => redact(item, depth + 1))
  const entries = Object.entries(value)
  return Object.fromEntries(
    entries.map(([key, part]) => [
      key,
      SECRET_KEYS.test(key) && part !== undefined ? '[redacted]' : redact(part, depth + 1),
    ]),
  )
}

function describeError(error: Error, depth: number): Record<string, unknown> {
  const code = (error as { code?: unknown }).code
  return {
    type: error.name,
    message: error.message,
    ...(code === undefined ? {} : { code }),
    ...(error.cause === undefined ? {} : { cause: redact(error.cause, depth + 1) }),
    // A programmer's mistake is found by its stack; an expected failure has a class of its own.
    ...(PROGRAMMING_ERRORS.has(error.name) ? { stack: error.stack } : {}),
  }
}

const PROGRAMMING_ERRORS: ReadonlySet<string> = new Set(['TypeError', 'ReferenceError', 'RangeError'])
