/** The error class of the kernel drivers: each driver translates what the kernel or a tool reports into it, once. */

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
  /** What was tried, as a command line: `ip route add …`. */
  readonly operation: string
  constructor(code: KernelErrorCode, operation: string, detail: string, options?: { cause?: unknown }) {
    super(`${operation}: ${detail}`, options)
    this.name = 'KernelError'
    this.code = code
    this.operation = operation
  }
}

/** True if the error says that the route, device, address, table or element does not exist. */
export function isNotFound(error: unknown): boolean {
  return error instanceof KernelError && ['ENOENT', 'ESRCH', 'ENODEV', 'EADDRNOTAVAIL'].includes(error.code)
}

/** True if this kernel lacks what was asked for. */
export function isNotSupported(error: unknown): boolean {
  return error instanceof KernelError && error.code === 'EOPNOTSUPP'
}

export function isExists(error: unknown): boolean {
  return error instanceof KernelError && error.code === 'EEXIST'
}
