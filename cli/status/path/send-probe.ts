/** Sends the packets of a probe from this machine: one connection of TCP, which is reset at once, or a few datagrams. */
import { createSocket } from 'node:dgram'
import { connect } from 'node:net'
import type { ProbeReport } from '../../../explain/path/path.ts'
import type { Clock } from '../../../reconcile/reconcile.ts'
import { messageOf } from '../../../runtime/runtime.ts'

export interface SendInit {
  readonly protocol: 'tcp' | 'udp'
  readonly family: 4 | 6
  readonly to: string
  readonly port: number
  /** The address of this machine to send from. Absent: the kernel chooses. */
  readonly source?: string | undefined
  readonly sourcePort: number
  /** So long for the answer. The kernel sends a SYN at 0, 1 and 3 seconds. */
  readonly waitMs: number
}

type Sent = NonNullable<ProbeReport['sent']>

/** Four datagrams, so that one that is lost does not decide. */
const DATAGRAMS = 4

/** Rejects only with the signal's reason. */
export async function sendProbe(init: SendInit, clock: Clock, signal: AbortSignal): Promise<Sent> {
  signal.throwIfAborted()
  const began = clock.monotonic()
  const { promise, resolve } = Promise.withResolvers<Sent>()
  const take = (result: Sent['result'], message: string, source?: string): void =>
    resolve({
      ...{ result, message },
      ...(source === undefined ? {} : { source }),
      ...(result === 'answered' || result === 'refused'
        ? { ms: Math.round((clock.monotonic() - began) * 10) / 10 }
        : {}),
    })
  const stopTimer = clock.setTimer(init.waitMs, () => take('silent', `no answer within ${init.waitMs / 1000} s`))
  const end = init.protocol === 'tcp' ? callTcp(init, take) : callUdp(init, clock, take)
  const onAbort = (): void => take('failed', 'interrupted')
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    const sent = await promise
    signal.throwIfAborted()
    return sent
  } finally {
    signal.removeEventListener('abort', onAbort)
    stopTimer()
    end()
  }
}

type Take = (result: Sent['result'], message: string, source?: string) => void

function callTcp({ to, port, source, sourcePort, family }: SendInit, take: Take): () => void {
  const local = source === undefined ? {} : { localAddress: source }
  const socket = connect({ host: to, port, family, localPort: sourcePort, ...local })
  socket.on('connect', () => take('answered', 'the called end answers', socket.localAddress))
  socket.on('error', (error) => failed(error, take))
  return () => {
    // A reset of a connection that is not open yet would wait for it, and go on sending.
    if (socket.connecting || socket.destroyed) socket.destroy()
    else socket.resetAndDestroy()
  }
}

function callUdp({ to, port, source, sourcePort, family, waitMs }: SendInit, clock: Clock, take: Take): () => void {
  const socket = createSocket(family === 4 ? 'udp4' : 'udp6')
  let cancel: (() => void) | undefined
  let left = DATAGRAMS
  const own = (): string => socket.address().address
  socket.on('error', (error) => failed(error, take))
  socket.on('message', () => take('answered', 'the called end answers', own()))
  const send = (): void => {
    socket.send('', (error) => {
      if (error !== null) failed(error, take)
    })
    left -= 1
    if (left > 0) cancel = clock.setTimer(waitMs / (DATAGRAMS + 1), send)
  }
  // Connected, so that an ICMP error reaches this program. With a callback, a failure would not be an event.
  socket.on('connect', send)
  socket.bind(sourcePort, source, () => socket.connect(port, to))
  return () => {
    cancel?.()
    socket.close()
  }
}

const UNREACHABLE = ['EHOSTUNREACH', 'ENETUNREACH', 'ENETDOWN', 'EHOSTDOWN']

function failed(error: Error, take: Take): void {
  const { code = '' } = error as NodeJS.ErrnoException
  if (code === 'ECONNREFUSED') take('refused', 'the call is refused')
  else if (UNREACHABLE.includes(code)) take('unreachable', `the called end is unreachable (${code})`)
  // EPERM: a rule of the output drops it. Only the trace says which one.
  else take('failed', `it could not be sent: ${messageOf(error)}`)
}
