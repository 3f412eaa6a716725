/** One question to one upstream, over UDP or TCP: the first fitting answer, an error, or the end of patience. */
import { createSocket } from 'node:dgram'
import { connect } from 'node:net'
import { formatAddress } from '../../model/addresses/ip.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { SocketAddress } from '../config.ts'

export interface Exchange {
  readonly upstream: SocketAddress
  readonly query: Buffer
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  /** Over UDP: sent once more when half the time is over, since a packet may be lost. */
  readonly repeats: boolean
  /** True for the answer to this query; anything else that arrives is passed over. */
  readonly isAnswer: (message: Buffer) => boolean
}

/** The socket is connected, so the kernel drops what other hosts send. Rejects on time-out, refusal and abort. */
export function exchangeUdp(exchange: Exchange): Promise<Buffer> {
  const { upstream, query, clock, timeoutMs, repeats } = exchange
  const socket = createSocket(upstream.address.family === 4 ? 'udp4' : 'udp6')
  let cancelRepeat = (): void => undefined
  return settleOnce(exchange, {
    start: (resolve, reject) => {
      const send = (): void => {
        try {
          socket.send(query, (error) => {
            if (error !== null) reject(error)
          })
        } catch (error) {
          // Closed meanwhile.
          reject(error as Error)
        }
      }
      socket.on('error', reject)
      socket.on('message', (message) => {
        if (exchange.isAnswer(message)) resolve(message)
      })
      socket.connect(upstream.port, formatAddress(upstream.address), send)
      if (repeats) cancelRepeat = clock.setTimer(timeoutMs / 2, send)
    },
    stop: () => {
      cancelRepeat()
      socket.close()
    },
  })
}

/** RFC 7766, one query for each connection. */
export function exchangeTcp(exchange: Exchange): Promise<Buffer> {
  const { upstream, query } = exchange
  const socket = connect({ host: formatAddress(upstream.address), port: upstream.port, noDelay: true })
  let received: Buffer = Buffer.alloc(0)
  return settleOnce(exchange, {
    start: (resolve, reject) => {
      socket.on('error', reject)
      socket.on('end', () => reject(new Error('connection ended before a whole answer')))
      socket.on('data', (chunk: Buffer) => {
        received = Buffer.concat([received, chunk])
        if (received.length < 2 || received.length < 2 + received.readUInt16BE(0)) return
        const message = received.subarray(2, 2 + received.readUInt16BE(0))
        if (exchange.isAnswer(message)) resolve(message)
        else reject(new Error('answer does not fit the question'))
      })
      const length = Buffer.alloc(2)
      length.writeUInt16BE(query.length, 0)
      socket.write(Buffer.concat([length, query]))
    },
    stop: () => socket.destroy(),
  })
}

interface Attempt {
  readonly start: (resolve: (answer: Buffer) => void, reject: (error: Error) => void) => void
  readonly stop: () => void
}

function settleOnce({ clock, timeoutMs, signal }: Exchange, attempt: Attempt): Promise<Buffer> {
  let release = (): void => undefined
  const settled = new Promise<Buffer>((resolve, reject) => {
    const cancel = clock.setTimer(timeoutMs, () => reject(new Error(`no answer within ${timeoutMs} ms`)))
    const onAbort = (): void => reject(new Error('stopped'))
    signal.addEventListener('abort', onAbort, { once: true })
    release = () => {
      cancel()
      signal.removeEventListener('abort', onAbort)
      attempt.stop()
    }
    if (signal.aborted) onAbort()
    else attempt.start(resolve, reject)
  })
  return settled.finally(release)
}
