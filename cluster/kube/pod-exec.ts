/**
 * A command in a container, by the API server's exec subresource over a WebSocket (v4 and v5.channel.k8s.io: the first
 * byte of each message is its stream; stream 3 carries the metav1.Status that ends it).
 */
import WebSocket from 'ws'
import { KubeError } from './kube-error.ts'
import { resourcePath } from './kinds.ts'
import type { ServerAccess } from './server-access.ts'

export interface PodCommand {
  readonly namespace: string
  readonly pod: string
  readonly container: string
  readonly command: readonly string[]
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

const STDOUT = 1
const STDERR = 2
const END = 3
const MAX_OUTPUT_BYTES = 4 << 20

/** Throws KubeError when the command could not be run; a status other than 0 is a result. Rejects with the signal's reason. */
export async function execInPod(
  access: ServerAccess,
  { namespace, pod, container, command }: PodCommand,
  signal: AbortSignal,
): Promise<CommandResult> {
  const title = `Pod ${namespace}/${pod}`
  const query = [
    ['container', container],
    ['stdout', 'true'],
    ['stderr', 'true'],
    ...command.map((word) => ['command', word]),
  ]
  const words = query.map(([name = '', value = '']) => `${name}=${encodeURIComponent(value)}`).join('&')
  const path = resourcePath({ apiVersion: 'v1', plural: 'pods' }, namespace, pod)
  const base = access.server.pathname.replace(/\/$/, '')
  const url = new URL(`${base}${path}/exec?${words}`, access.server)
  url.protocol = access.server.protocol === 'http:' ? 'ws:' : 'wss:'
  const { headers, ...connection } = await access.credentials(signal)
  const options = Object.fromEntries(Object.entries(connection).filter(([, value]) => value !== undefined))
  const socket = new WebSocket(url, ['v5.channel.k8s.io', 'v4.channel.k8s.io'], { ...options, headers })
  return listen(socket, title, signal)
}

function listen(socket: WebSocket, title: string, signal: AbortSignal): Promise<CommandResult> {
  const output = { [STDOUT]: [] as Buffer[], [STDERR]: [] as Buffer[] }
  let bytes = 0
  let end: EndStatus | undefined
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      socket.terminate()
      reject(signal.reason as Error)
    }
    const fail = (message: string, status = 0): void => {
      reject(new KubeError(`exec ${title}: ${message}`, { code: 'Unavailable', status, reason: 'ExecFailed' }))
      socket.terminate()
    }
    if (signal.aborted) {
      onAbort()
      return
    }
    signal.addEventListener('abort', onAbort, { once: true })
    socket.on('unexpected-response', (_request, response) => fail(`the API server says ${response.statusCode ?? 0}`))
    socket.on('error', (error) => fail(error.message))
    socket.on('message', (data: Buffer) => {
      const channel = data[0]
      if (channel === END) end = parseEnd(data.subarray(1))
      if (channel !== STDOUT && channel !== STDERR) return
      bytes += data.length
      if (bytes > MAX_OUTPUT_BYTES) fail(`more than ${MAX_OUTPUT_BYTES} bytes of output`)
      else output[channel].push(data.subarray(1))
    })
    socket.on('close', () => {
      signal.removeEventListener('abort', onAbort)
      const status = end === undefined ? undefined : exitStatus(end)
      if (status === undefined) fail(end?.message ?? 'the connection ended before the command did')
      else resolve({ status, stdout: text(output[STDOUT]), stderr: text(output[STDERR]) })
    })
  })
}

function parseEnd(data: Buffer): EndStatus {
  try {
    return JSON.parse(data.toString('utf8')) as EndStatus
  } catch {
    return {}
  }
}

/** Undefined when the command did not run. */
function exitStatus(end: EndStatus): number | undefined {
  if (end.status === 'Success') return 0
  const code = end.details?.causes?.find(({ reason }) => reason === 'ExitCode')?.message
  return code === undefined ? undefined : Number(code)
}

function text(parts: readonly Buffer[]): string {
  return Buffer.concat(parts).toString('utf8')
}
