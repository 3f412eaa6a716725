/** Every driver in kernel/ turns what the kernel or a tool said into one of these, once. */

export type KernelErrorCode =
  | 'EEXIST'
  | 'ENOENT'
  | 'ESRCH'
  | 'EBUSY'
  | 'EINVAL'
  | 'EPERM'
  | 'ENODEV'
  | 'EOPNOTSUPP'
  | 'EADDRINUSE'
  | 'EADDRNOTAVAIL'
  | 'ENETDOWN'
  | 'ENETUNREACH'
  | 'EHOSTUNREACH'
  | 'EINTR'
  | 'MISSING_TOOL'
  | 'TIMEOUT'
  | 'UNKNOWN'

export class KernelError extends Error {
  readonly code: KernelErrorCode
  /** What was tried, in the tool's own words: `ip route add …`. */
  readonly operation: string
  constructor(code: KernelErrorCode, operation: string, detail: string, options?: { cause?: unknown }) {
    super(`${operation}: ${detail}`, options)
    this.name = 'KernelError'
    this.code = code
    this.operation = operation
  }
}

/** The thing is not there: no such route, device, address, table, element. */
export function isNotFound(error: unknown): boolean {
  return error instanceof KernelError && ['ENOENT', 'ESRCH', 'ENODEV', 'EADDRNOTAVAIL'].includes(error.code)
}

export function isExists(error: unknown): boolean {
  return error instanceof KernelError && error.code === 'EEXIST'
}
