/**
 * Runs a command in a container with the API server's exec subresource over a WebSocket (v4 and v5.channel.k8s.io: the
 * first byte of each message is its stream; stream 3 carries the final metav1.Status).
 */
import type { IncomingMessage } from 'node:http'
import WebSocket from 'ws'
import { type Clock, abortReason, orAborted } from '../../../reconcile/reconcile.ts'
import { errorOf } from '../../../runtime/runtime.ts'
import {
  type RequestLine,
  KubeError,
  LoginError,
  errorFromAnswer,
  errorFromConnection,
  noAnswer,
} from '../kube-error.ts'
import { resourcePath } from '../kinds.ts'
import type { Credentials, ServerAccess } from '../server-access.ts'

export interface PodCommand {
  readonly namespace: string
  readonly pod: string
  readonly container: string
  readonly command: readonly string[]
  /** Its standard input. The command itself must know where the input ends: older servers cannot signal the end. */
  readonly input?: AsyncIterable<Buffer>
  /** Receives standard output in parts, so that it may be long; stdout of the result is empty then. */
  readonly onStdout?: (part: Buffer) => void
  /** Limit until the command has ended; default one minute. */
  readonly timeoutMs?: number
}

export interface CommandResult {
  /** Exit status; 0 is success. */
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}

export interface PodExecDeps {
  readonly clock: Clock
  readonly access: ServerAccess
}

interface EndStatus {
  readonly status?: string
  readonly message?: string
  readonly reason?: string
  readonly details?: { readonly causes?: readonly { readonly reason?: string; readonly message?: string }[] }
}

const STDIN = 0
const STDOUT = 1
const STDERR = 2
const END = 3
const MAX_OUTPUT_BYTES = 4 << 20
/** Limit of the body of a refusal. */
const MAX_SAID_BYTES = 64 << 10
/** Limit until the server has accepted the connection, as for any other request. */
const HANDSHAKE_MS = 10_000
/** Limit until the command has ended: an API server that died sends nothing. */
const COMMAND_MS = 60_000

/**
 * Throws KubeError if the command could not be run or does not end in time; an exit status other than 0 is a result.
 * Rejects with the signal's reason.
 */
export async function execInPod(
  { clock, access }: PodExecDeps,
  command: PodCommand,
  signal: AbortSignal,
): Promise<CommandResult> {
  const asked: RequestLine = { verb: 'exec', title: `Pod ${command.namespace}/${command.pod}` }
  const server = access.server.href.replace(/\/$/, '')
  const late = new AbortController()
  const cancel = clock.setTimer(HANDSHAKE_MS, () => late.abort(noAnswer(asked, server, HANDSHAKE_MS)))
  try {
    const either = AbortSignal.any([signal, late.signal])
    either.throwIfAborted()
    const { headers, ...connection } = await login(access, either).catch((error: unknown) => {
      throw either.aborted ? abortReason(either) : errorFromConnection(asked, server, error)
    })
    const options = Object.fromEntries(Object.entries(connection).filter(([, value]) => value !== undefined))
    const socket = new WebSocket(execUrl(access.server, command), ['v5.channel.k8s.io', 'v4.channel.k8s.io'], {
      ...options,
      headers,
    })
    socket.on('open', cancel)
    return await new Run({ clock, socket, asked, server, command }).done(signal, late.signal)
  } catch (error) {
    if (error instanceof KubeError && error.status === 401 && error.reason !== 'NoLogin') access.forget()
    throw error
  } finally {
    cancel()
  }
}

async function login(access: ServerAccess, signal: AbortSignal): Promise<Credentials> {
  try {
    return await orAborted(access.credentials(signal), signal)
  } catch (error) {
    throw new LoginError(error)
  }
}

function execUrl(server: URL, { namespace, pod, container, command, input }: PodCommand): URL {
  const query = [
    ['container', container],
    ...(input === undefined ? [] : [['stdin', 'true']]),
    ['stdout', 'true'],
    ['stderr', 'true'],
    ...command.map((word) => ['command', word]),
  ]
  const words = query.map(([name = '', value = '']) => `${name}=${encodeURIComponent(value)}`).join('&')
  const path = resourcePath({ apiVersion: 'v1', plural: 'pods' }, namespace, pod)
  const url = new URL(`${server.pathname.replace(/\/$/, '')}${path}/exec?${words}`, server)
  url.protocol = server.protocol === 'http:' ? 'ws:' : 'wss:'
  return url
}

interface RunInit {
  readonly clock: Clock
  readonly socket: WebSocket
  readonly asked: RequestLine
  readonly server: string
  readonly command: PodCommand
}

/** One command, from the handshake to its end. */
class Run {
  readonly #init: RunInit
  readonly #output = { [STDOUT]: [] as Buffer[], [STDERR]: [] as Buffer[] }
  #bytes = 0
  #end: EndStatus | undefined

  constructor(init: RunInit) {
    this.#init = init
  }

  /** `late` aborts when the handshake takes too long. */
  done(signal: AbortSignal, late: AbortSignal): Promise<CommandResult> {
    const { clock, socket, asked, server } = this.#init
    return new Promise((resolve, reject) => {
      const fail = (error: Error): void => {
        reject(error)
        socket.terminate()
      }
      const either = AbortSignal.any([signal, late])
      const onAbort = (): void => fail(either.reason as Error)
      let cancel = (): void => undefined
      socket.on('open', () => {
        const { timeoutMs = COMMAND_MS } = this.#init.command
        const tooLong = `the command did not end within ${timeoutMs / 1000} s`
        cancel = clock.setTimer(timeoutMs, () => fail(this.#failed(tooLong)))
        this.#send().catch((error: unknown) => fail(errorOf(error)))
      })
      socket.on('unexpected-response', (_request, response) => void this.#refusal(response).then(fail))
      socket.on('error', (error) => fail(errorFromConnection(asked, server, error)))
      socket.on('message', (data: Buffer) => {
        try {
          if (!this.#take(data)) fail(this.#failed(`more than ${MAX_OUTPUT_BYTES} bytes of output`, 'TooLarge'))
        } catch (error) {
          // The reader of the output failed; its disk is full, for example.
          fail(error as Error)
        }
      })
      socket.on('close', () => {
        cancel()
        either.removeEventListener('abort', onAbort)
        const result = this.#result()
        if (result instanceof KubeError) reject(result)
        else resolve(result)
      })
      either.addEventListener('abort', onAbort, { once: true })
      if (either.aborted) onAbort()
    })
  }

  /** Sends the next part when the socket has accepted the previous one. It stops when the command has ended. */
  async #send(): Promise<void> {
    const { socket, command } = this.#init
    for await (const part of command.input ?? []) {
      if (socket.readyState !== WebSocket.OPEN) return
      await new Promise<void>((resolve) => socket.send(Buffer.concat([Buffer.of(STDIN), part]), () => resolve()))
    }
  }

  /** Returns false if the output is too long. */
  #take(data: Buffer): boolean {
    const channel = data[0]
    if (channel === END) this.#end = parseEnd(data.subarray(1))
    if (channel !== STDOUT && channel !== STDERR) return true
    const { onStdout } = this.#init.command
    if (channel === STDOUT && onStdout !== undefined) {
      onStdout(data.subarray(1))
      return true
    }
    this.#bytes += data.length
    if (this.#bytes <= MAX_OUTPUT_BYTES) this.#output[channel].push(data.subarray(1))
    return this.#bytes <= MAX_OUTPUT_BYTES
  }

  #result(): CommandResult | KubeError {
    const status = this.#end === undefined ? undefined : exitStatus(this.#end)
    if (status === undefined) return this.#failed(this.#end?.message ?? 'the connection ended before the command did')
    return { status, stdout: text(this.#output[STDOUT]), stderr: text(this.#output[STDERR]) }
  }

  #failed(message: string, reason: 'ExecFailed' | 'TooLarge' = 'ExecFailed'): KubeError {
    const { verb, title } = this.#init.asked
    return new KubeError(`${verb} ${title}: ${message}`, { code: 'Unavailable', status: 0, reason })
  }

  /** The server answered but refused the connection. */
  async #refusal(response: IncomingMessage): Promise<KubeError> {
    const { asked, server } = this.#init
    try {
      return errorFromAnswer(asked, response.statusCode ?? 0, await said(response))
    } catch (error) {
      return errorFromConnection(asked, server, error)
    }
  }
}

/** Returns JSON or text; a body that is too long is truncated. */
async function said(response: IncomingMessage): Promise<unknown> {
  const parts: Buffer[] = []
  let bytes = 0
  for await (const part of response as AsyncIterable<Buffer>) {
    bytes += part.length
    parts.push(part)
    if (bytes > MAX_SAID_BYTES) break
  }
  const whole = text(parts)
  try {
    return JSON.parse(whole) as unknown
  } catch {
    return whole
  }
}

function parseEnd(data: Buffer): EndStatus {
  try {
    return JSON.parse(data.toString('utf8')) as EndStatus
  } catch {
    return {}
  }
}

/** Undefined if the command did not run. */
function exitStatus(end: EndStatus): number | undefined {
  if (end.status === 'Success') return 0
  const code = end.details?.causes?.find(({ reason }) => reason === 'ExitCode')?.message
  return code === undefined ? undefined : Number(code)
}

function text(parts: readonly Buffer[]): string {
  return Buffer.concat(parts).toString('utf8')
}
