/** What one connection may open and reset: each stream costs the one thread that serves all. */
import type { Server, ServerInterceptor, ServerInterceptingCall } from '@grpc/grpc-js'
import { methodPath } from './raw-service.ts'
import { passFrames } from './watch/watch-output.ts'

export interface StreamLimits {
  /** Streams that may be opened at once, and one more in each of `refillMs`. */
  readonly burst: number
  readonly refillMs: number
}

interface Opened {
  left: number
  atMs: number
}

const MAX_PEERS = 8192
const WATCH_PATH = methodPath('watch')

/** Calls `drop` for a peer that opens more. */
export function streamLimiter(
  { burst, refillMs }: StreamLimits,
  now: () => number,
  drop: (peer: string) => void,
): ServerInterceptor {
  const peers = new Map<string, Opened>()
  return (method, call) => {
    if (method.path === WATCH_PATH) passFrames(call)
    const peer = call.getPeer()
    const before = peers.get(peer) ?? { left: burst, atMs: now() }
    const left = Math.min(burst, before.left + (now() - before.atMs) / refillMs) - 1
    // In the order of their last stream: those that are gone go first.
    peers.delete(peer)
    peers.set(peer, { left, atMs: now() })
    const oldest = peers.size > MAX_PEERS ? peers.keys().next().value : undefined
    if (oldest !== undefined) peers.delete(oldest)
    if (left < 0) drop(peer)
    // Without a responder the wrapper would only hand on each message: the call itself does as well.
    return call as unknown as ServerInterceptingCall
  }
}

/**
 * HTTP/2 lets a peer open a stream and reset it at once, without end and without ever having two open. Node ends the
 * connection of one that does; grpc-js has no option for how often.
 */
export function limitResets(server: Server, { burst, refillMs }: StreamLimits): void {
  const options = (server as unknown as { commonServerOptions?: Record<string, unknown> }).commonServerOptions
  if (options === undefined) throw new Error('grpc-js has no commonServerOptions any more: see limitResets()')
  options['streamResetBurst'] = burst
  options['streamResetRate'] = Math.max(1, Math.round(1000 / refillMs))
}
