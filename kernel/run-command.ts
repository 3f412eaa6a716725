/**
 * Runs the kernel tools (nft, wg, wireguard-go, ip, ethtool) in a clean environment. No other module of this folder
 * starts a process and waits for it to end.
 */
import { ProgramError, runProgram } from '../runtime/runtime.ts'
import { KernelError } from './errors.ts'

/** The Debian package of each tool. Error messages name it. */
const PACKAGES: Readonly<Record<string, string>> = {
  nft: 'nftables',
  wg: 'wireguard-tools',
  'wireguard-go': 'wireguard-go',
  ip: 'iproute2',
  ethtool: 'ethtool',
  mkfifo: 'coreutils',
}

const DEFAULT_TIMEOUT_MS = 30_000
/** A listing of 100,000 map elements is well below this limit. */
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024

export interface CommandOptions {
  /** Standard input of the tool. */
  readonly input?: string
  /** Variables of the tool's environment, besides those of toolEnvironment(). */
  readonly env?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal | undefined
  readonly timeoutMs?: number
}

export interface CommandResult {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

export type RunCommand = (tool: string, args: readonly string[], options?: CommandOptions) => Promise<CommandResult>

/** Adds the sbin folders to PATH: the default PATH on Debian lacks them, and the tools are there. */
export function toolEnvironment(): NodeJS.ProcessEnv {
  const path = process.env['PATH'] ?? ''
  return {
    PATH: [path, '/usr/local/sbin', '/usr/sbin', '/sbin', '/usr/bin', '/bin'].filter((part) => part !== '').join(':'),
    LC_ALL: 'C',
  }
}

/**
 * Resolves with the result whatever the exit status. Throws KernelError MISSING_TOOL (names the package), EPERM,
 * TIMEOUT, EINTR (aborted) or UNKNOWN (killed, too much output).
 */
export const runCommand: RunCommand = async (tool, args, options = {}) => {
  const { input, env, signal, timeoutMs = DEFAULT_TIMEOUT_MS } = options
  const init = { env: { ...toolEnvironment(), ...env }, timeoutMs, maxOutputBytes: MAX_OUTPUT_BYTES, signal }
  try {
    const { code, stdout, stderr } = await runProgram(tool, args, input === undefined ? init : { ...init, input })
    return { code, stdout: stdout.toString('utf8'), stderr: stderr.toString('utf8') }
  } catch (error) {
    throw error instanceof ProgramError ? commandError(tool, [tool, ...args].join(' '), error) : error
  }
}

function commandError(tool: string, operation: string, error: ProgramError): KernelError {
  const cause = { cause: error }
  if (error.code === 'ENOENT') {
    const name = PACKAGES[tool] ?? tool
    return new KernelError('MISSING_TOOL', operation, `${tool} is not installed: apt-get install ${name}`, cause)
  }
  if (error.code === 'EACCES') return new KernelError('EPERM', operation, 'permission denied', cause)
  const code = error.failure === 'late' ? 'TIMEOUT' : error.failure === 'aborted' ? 'EINTR' : 'UNKNOWN'
  return new KernelError(code, operation, error.message.slice(0, 300), cause)
}
