/**
 * Decides when a listen address is opened, and how a process leaves its ports. A process that has not read its objects
 * knows no name. If another process serves the port, the SERVFAILs of this one would mix with correct answers, so it
 * opens the address only when it has read its objects. If no process serves the port, it waits only for a moment:
 * clients then get SERVFAIL instead of silence.
 */
import { readFileSync } from 'node:fs'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type DnsConfig, type SocketAddress, formatSocketAddress } from '../config/config.ts'
import type { ServiceIndex } from '../zone/zone.ts'
import type { Listener } from './listener.ts'
import type { Pipeline } from './pipeline.ts'

export interface OpeningDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly index: Pick<ServiceIndex, 'whenSynced'>
  /** True if any socket of this machine has the port. Defaults to isPortServed(). */
  readonly isServed?: ((at: SocketAddress) => boolean) | undefined
}

/** Pause between two checks of whether another process serves the port. */
const LOOK_MS = 100

/** Resolves when `at` should be opened. Rejects with the reason of the signal. */
export async function untilDue(
  deps: OpeningDeps,
  { at, mostMs }: { readonly at: SocketAddress; readonly mostMs: number },
  signal: AbortSignal,
): Promise<void> {
  const { clock, logger, index, isServed = isPortServed } = deps
  const over = new AbortController()
  const either = AbortSignal.any([signal, over.signal])
  const start = clock.monotonic()
  const lookUntilAlone = async (): Promise<void> => {
    let reported = false
    for (;;) {
      await clock.sleep(reported ? LOOK_MS : mostMs, either)
      const waited = { listen: formatSocketAddress(at), seconds: Math.round((clock.monotonic() - start) / 1000) }
      if (!isServed(at)) {
        logger.warn('services have not been read yet; listening anyway, and answering SERVFAIL', {
          reason: 'ServicesNotRead',
          ...waited,
        })
        return
      }
      if (!reported) logger.info('services have not been read yet; meanwhile another process serves the port', waited)
      reported = true
    }
  }
  try {
    await Promise.race([index.whenSynced(either), lookUntilAlone()])
  } finally {
    over.abort()
  }
}

/** Reads the list of UDP sockets of the kernel. Returns false if it cannot be read. */
export function isPortServed(at: SocketAddress): boolean {
  return isListed(at, at.address.family === 4 ? '/proc/net/udp' : '/proc/net/udp6')
}

function isListed({ address, port }: SocketAddress, file: string): boolean {
  const digits = address.family === 4 ? 8 : 32
  const own = inKernelOrder(address.value.toString(16).padStart(digits, '0'))
  const wanted = [own, '0'.repeat(digits)].map((text) => `${text}:${port.toString(16).padStart(4, '0')}`.toUpperCase())
  try {
    return readFileSync(file, 'utf8')
      .split('\n')
      .some((line) => wanted.includes(line.trim().split(/\s+/)[1] ?? ''))
  } catch {
    return false
  }
}

/** Returns words of 32 bits as a little-endian machine prints them. */
function inKernelOrder(hex: string): string {
  return (hex.match(/.{8}/g) ?? []).map((word) => (word.match(/../g) ?? []).reverse().join('')).join('')
}

// Leaves the ports of a process without lost queries: new queries go to another process on the same port, if there is
// one; received queries are answered; then the sockets are closed.

interface LeavingInit {
  readonly clock: Clock
  readonly listeners: readonly Listener[]
  readonly pipeline: Pick<Pipeline, 'underWay'>
}

const QUIET_LOOK_MS = 10

/**
 * Serves for `lingerMs`, and then while queries to the upstreams are open, for at most the timeout of one upstream.
 * Leaves the listeners open. Returns at once if `lingerMs` is 0.
 */
export async function giveWay(
  { clock, listeners, pipeline }: LeavingInit,
  { lingerMs, upstreamTimeoutMs }: Pick<DnsConfig, 'lingerMs' | 'upstreamTimeoutMs'>,
): Promise<void> {
  if (lingerMs === 0 || listeners.length === 0) return
  for (const listener of listeners) listener.passOn()
  const never = new AbortController().signal
  await clock.sleep(lingerMs, never)
  const end = clock.monotonic() + upstreamTimeoutMs
  while (pipeline.underWay > 0 && clock.monotonic() < end) await clock.sleep(QUIET_LOOK_MS, never)
}
