/**
 * Runs the kernel tools (nft, wg, wireguard-go, ip, ethtool): argument list, no shell, a clean environment, a deadline.
 * The only place in this folder that starts a process and waits for it.
 */
import { execFile } from 'node:child_process'
import { KernelError } from './errors.ts'

/** The Debian package that brings each tool: error texts name it. */
const PACKAGES: Readonly<Record<string, string>> = {
  nft: 'nftables',
  wg: 'wireguard-tools',
  'wireguard-go': 'wireguard-go',
  ip: 'iproute2',
  ethtool: 'ethtool',
  mkfifo: 'coreutils',
}

const DEFAULT_TIMEOUT_MS = 30_000
/** Listings of 100,000 map elements stay well below. */
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024

export interface CommandOptions {
  /** What the tool reads on its standard input. */
  readonly input?: string
  readonly signal?: AbortSignal | undefined
  readonly timeoutMs?: number
}

export interface CommandResult {
  /** Exit status of the tool. */
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

export type RunCommand = (tool: string, args: readonly string[], options?: CommandOptions) => Promise<CommandResult>

/** Administrators' folders are in nobody's default PATH on Debian, but the tools are there. */
export function toolEnvironment(): NodeJS.ProcessEnv {
  const path = process.env['PATH'] ?? ''
  return {
    PATH: [path, '/usr/local/sbin', '/usr/sbin', '/sbin', '/usr/bin', '/bin'].filter((part) => part !== '').join(':'),
    LC_ALL: 'C',
  }
}

/**
 * Resolves with whatever exit status the tool gave. Throws KernelError MISSING_TOOL (names the package), TIMEOUT,
 * EINTR (aborted) or UNKNOWN (killed, too much output).
 */
export const runCommand: RunCommand = (tool, args, options = {}) => {
  const operation = [tool, ...args].join(' ')
  const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS
  if (options.signal?.aborted === true)
    return Promise.reject(new KernelError('EINTR', operation, 'stopped before it began'))
  return new Promise((resolve, reject) => {
    const settings = {
      env: toolEnvironment(),
      encoding: 'utf8' as const,
      maxBuffer: MAX_OUTPUT_BYTES,
      timeout: timeoutMs,
      killSignal: 'SIGKILL' as const,
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    }
    const child = execFile(tool, [...args], settings, (error, stdout, stderr) => {
      if (error === null) {
        resolve({ code: 0, stdout, stderr })
        return
      }
      if (typeof error.code === 'number') {
        resolve({ code: error.code, stdout, stderr })
        return
      }
      reject(startError(tool, operation, error, options.signal, timeoutMs))
    })
    // A tool that ends before it has read everything closes the pipe; its exit status says why.
    child.stdin?.on('error', () => undefined)
    child.stdin?.end(options.input ?? '')
  })
}

function startError(
  tool: string,
  operation: string,
  error: Error & { code?: unknown; killed?: boolean },
  signal: AbortSignal | undefined,
  timeoutMs: number,
): KernelError {
  const cause = { cause: error }
  if (error.code === 'ENOENT') {
    const name = PACKAGES[tool] ?? tool
    return new KernelError('MISSING_TOOL', operation, `${tool} is not installed: apt-get install ${name}`, cause)
  }
  if (error.code === 'EACCES') return new KernelError('EPERM', operation, 'may not be started', cause)
  if (signal?.aborted === true) return new KernelError('EINTR', operation, 'stopped', cause)
  if (error.killed === true && error.code !== 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') {
    return new KernelError('TIMEOUT', operation, `no end after ${timeoutMs} ms`, cause)
  }
  return new KernelError('UNKNOWN', operation, error.message.slice(0, 300), cause)
}
