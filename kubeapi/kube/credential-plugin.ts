/**
 * Credential plugins (client.authentication.k8s.io/v1 and v1beta1): a program that a kubeconfig names prints a token or
 * a client certificate, as for kubectl. Its answer is kept until it expires or the API server refuses it.
 */
import { isatty } from 'node:tty'
import { readFile } from 'node:fs/promises'
import type { RequestOptions } from 'node:https'
import { resolve } from 'node:path'
import type { Cluster } from '@kubernetes/client-node/dist/config_types.js'
import type { Clock } from '../../reconcile/reconcile.ts'
import { ProgramError, checkReadable, runProgram } from '../../runtime/runtime.ts'

export interface ExecConfig {
  readonly apiVersion?: string
  readonly command?: string
  readonly args?: readonly string[] | null
  readonly env?: readonly { readonly name: string; readonly value: string }[] | null
  readonly installHint?: string
  /** Whether the program may use the terminal. Default IfAvailable. */
  readonly interactiveMode?: string
  readonly provideClusterInfo?: boolean
}

export interface PluginInit {
  readonly clock: Clock
  readonly exec: ExecConfig
  /** The folder of the kubeconfig, from which a relative path of the program starts. */
  readonly folder: string
  readonly cluster: Cluster & { readonly pluginConfig?: unknown }
}

const DEFAULT_VERSION = 'client.authentication.k8s.io/v1'
/** A person may have to log in meanwhile. */
const TIMEOUT_MS = 300_000
const MAX_OUTPUT = 1 << 20
/** A token must still be valid when the request arrives. */
const EARLY_MS = 5000

interface Granted {
  readonly token?: string
  readonly cert?: string
  readonly key?: string
  /** Milliseconds since 1970. Infinity: it does not expire. */
  readonly untilMs: number
}

/** Returns a login. Its apply() throws Error with the program, what it said, and where to get it. */
export function pluginLogin(init: PluginInit): {
  readonly apply: (options: RequestOptions, signal: AbortSignal) => Promise<void>
  readonly forget: () => void
} {
  let kept: Granted | undefined
  return {
    apply: async (options, signal) => {
      if (kept === undefined || init.clock.now() >= kept.untilMs - EARLY_MS) kept = await run(init, signal)
      const { token, cert, key } = kept
      if (token !== undefined) Object.assign((options.headers ??= {}), { Authorization: `Bearer ${token}` })
      if (cert !== undefined) options.cert = cert
      if (key !== undefined) options.key = key
    },
    forget: () => {
      kept = undefined
    },
  }
}

async function run({ exec, folder, cluster }: PluginInit, signal: AbortSignal): Promise<Granted> {
  const { command = '', args, env, interactiveMode: mode = 'IfAvailable' } = exec
  const title = `credential plugin ${command}`
  if (command === '') throw new Error(`${title.trim()}: the kubeconfig names no command`)
  const isTerminal = isatty(0)
  if (!['Never', 'IfAvailable', 'Always'].includes(mode)) {
    throw new Error(`${title}: interactiveMode ${JSON.stringify(mode)}: expected Never, IfAvailable or Always`)
  }
  if (mode === 'Always' && !isTerminal) {
    throw new Error(`${title}: it wants a terminal (interactiveMode Always), and this process has none`)
  }
  const interactive = mode !== 'Never' && isTerminal
  const info = {
    apiVersion: exec.apiVersion ?? DEFAULT_VERSION,
    kind: 'ExecCredential',
    spec: { interactive, ...(exec.provideClusterInfo === true ? { cluster: await clusterInfo(cluster) } : {}) },
  }
  const stated = Object.fromEntries((env ?? []).map(({ name, value }) => [name, value]))
  try {
    // A command without a slash is looked up in PATH.
    const path = command.includes('/') ? resolve(folder, command) : command
    const { code, stdout, stderr } = await runProgram(path, args ?? [], {
      env: { ...process.env, ...stated, KUBERNETES_EXEC_INFO: JSON.stringify(info) },
      timeoutMs: TIMEOUT_MS,
      maxOutputBytes: MAX_OUTPUT,
      signal,
      atTerminal: interactive,
    })
    if (code !== 0) throw new Error(wordsOf(stderr) || `it ended with status ${code}`)
    return readAnswer(stdout.toString('utf8'), exec.apiVersion)
  } catch (error) {
    throw new Error(`${title}: ${whyFailed(error)}${hintFor(error, exec)}`, { cause: error })
  }
}

function whyFailed(error: unknown): string {
  if (!(error instanceof ProgramError)) return error instanceof Error ? error.message : String(error)
  if (error.failure === 'not started' && error.code === 'ENOENT') return 'it is not installed, or not in PATH'
  return [error.message, wordsOf(error.stderr)].filter((text) => text !== '').join(': ')
}

function hintFor(error: unknown, { installHint = '' }: ExecConfig): string {
  const isMissing = error instanceof ProgramError && error.code === 'ENOENT'
  return isMissing && installHint.trim() !== '' ? ` (${installHint.trim()})` : ''
}

/** The end of what it said: the cause comes last. */
function wordsOf(stderr: Buffer): string {
  return stderr.toString('utf8').trim().slice(-1000)
}

async function clusterInfo(cluster: PluginInit['cluster']): Promise<Record<string, unknown>> {
  const { server, caData, caFile, tlsServerName, skipTLSVerify, proxyUrl, pluginConfig } = cluster
  if (caData === undefined && caFile !== undefined) checkReadable(caFile)
  const ca = caData ?? (caFile === undefined ? undefined : (await readFile(caFile)).toString('base64'))
  return {
    server,
    'tls-server-name': tlsServerName,
    'insecure-skip-tls-verify': skipTLSVerify,
    'certificate-authority-data': ca,
    'proxy-url': proxyUrl,
    config: pluginConfig,
  }
}

/** Throws Error with what is missing. No message contains any of the answer, since that is a secret. */
function readAnswer(text: string, wanted: string | undefined): Granted {
  const { apiVersion, kind, status } = asMap(parsed(text), 'its answer')
  if (kind !== undefined && kind !== 'ExecCredential') throw new Error('its answer is not an ExecCredential')
  if (wanted !== undefined && apiVersion !== undefined && apiVersion !== wanted) {
    throw new Error(`its answer has another apiVersion than the kubeconfig: expected ${wanted}`)
  }
  const { token, clientCertificateData: cert, clientKeyData: key, expirationTimestamp } = asMap(status, 'status')
  for (const [name, value] of Object.entries({ token, clientCertificateData: cert, clientKeyData: key })) {
    if (value !== undefined && typeof value !== 'string') throw new Error(`its answer: status.${name}: expected a text`)
  }
  if (typeof token === 'string' && !/^[\t\x20-\x7e]*$/.test(token)) {
    throw new Error('its answer: status.token: expected printable ASCII: it is sent as a header')
  }
  const has = { token: isText(token), cert: isText(cert), key: isText(key) }
  if (has.cert !== has.key)
    throw new Error('its answer has a certificate without a key, or a key without a certificate')
  if (!has.token && !has.cert) throw new Error('its answer has no token and no certificate')
  const untilMs =
    expirationTimestamp === undefined || expirationTimestamp === null ? Infinity : timeOf(expirationTimestamp)
  return {
    untilMs,
    ...(isText(token) ? { token } : {}),
    ...(isText(cert) ? { cert } : {}),
    ...(isText(key) ? { key } : {}),
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    throw new Error('its answer is not JSON')
  }
}

function asMap(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  throw new Error(what === 'status' ? 'its answer has no status' : `${what} is not an object`)
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== ''
}

function timeOf(value: unknown): number {
  const ms = typeof value === 'string' ? Date.parse(value) : Number.NaN
  if (Number.isNaN(ms)) throw new Error('its answer: status.expirationTimestamp: expected an RFC 3339 time')
  return ms
}
