/**
 * Runs a command in a container with the API server's exec subresource over a WebSocket (v4 and v5.channel.k8s.io: the
 * first byte of each message is its stream; stream 3 carries the final metav1.Status).
 */
import WebSocket from 'ws'
import { type Clock, abortReason } from '../../../reconcile/reconcile.ts'
import { errorOf } from '../../../runtime/runtime.ts'
import { type RequestLine, KubeError, errorFromConnection } from '../kube-error.ts'
import { type PodSocketDeps, openPodSocket, serverTitle } from './pod-socket.ts'

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
/** Limit until the command has ended: an API server that died sends nothing. */
const COMMAND_MS = 60_000

/**
 * Throws KubeError if the command could not be run or does not end in time; an exit status other than 0 is a result.
 * Rejects with the signal's reason.
 */
export async function execInPod(
  { clock, access }: PodSocketDeps,
  command: PodCommand,
  signal: AbortSignal,
): Promise<CommandResult> {
  const asked: RequestLine = { verb: 'exec', title: `Pod ${command.namespace}/${command.pod}` }
  const { namespace, pod } = command
  const protocols = ['v5.channel.k8s.io', 'v4.channel.k8s.io']
  const place = { asked, namespace, pod, subresource: `exec?${execQuery(command)}`, protocols }
  const socket = await openPodSocket({ clock, access }, place, signal)
  return new Run({ clock, socket, asked, server: serverTitle(access), command }).done(signal)
}

function execQuery({ container, command, input }: PodCommand): string {
  const query = [
    ['container', container],
    ...(input === undefined ? [] : [['stdin', 'true']]),
    ['stdout', 'true'],
    ['stderr', 'true'],
    ...command.map((word) => ['command', word]),
  ]
  return query.map(([name = '', value = '']) => `${name}=${encodeURIComponent(value)}`).join('&')
}

interface RunInit {
  readonly clock: Clock
  readonly socket: WebSocket
  readonly asked: RequestLine
  readonly server: string
  readonly command: PodCommand
}

/** One command on an open socket, to its end. */
class Run {
  readonly #init: RunInit
  readonly #output = { [STDOUT]: [] as Buffer[], [STDERR]: [] as Buffer[] }
  #bytes = 0
  #end: EndStatus | undefined

  constructor(init: RunInit) {
    this.#init = init
  }

  done(signal: AbortSignal): Promise<CommandResult> {
    const { clock, socket, asked, server, command } = this.#init
    return new Promise((resolve, reject) => {
      const fail = (error: Error): void => {
        reject(error)
        socket.terminate()
      }
      const onAbort = (): void => fail(abortReason(signal))
      const { timeoutMs = COMMAND_MS } = command
      const tooLong = `the command did not end within ${timeoutMs / 1000} s`
      const cancel = clock.setTimer(timeoutMs, () => fail(this.#failed(tooLong)))
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
        signal.removeEventListener('abort', onAbort)
        const result = this.#result()
        if (result instanceof KubeError) reject(result)
        else resolve(result)
      })
      signal.addEventListener('abort', onAbort, { once: true })
      if (signal.aborted) onAbort()
      socket.resume()
      this.#send().catch((error: unknown) => fail(errorOf(error)))
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
