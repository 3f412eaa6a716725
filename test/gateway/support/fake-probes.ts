/** Probe sockets in memory. The far ends answer, or do not, as the test says. */
import { decodeProbe, encodeProbe } from '../../../gateway/health/probe-packet.ts'
import type { OpenProbeSocket, ProbeSocketEvents } from '../../../gateway/health/probe-socket.ts'
import { LANE_PROBE_PORT } from '../../../model/kernel-ids.ts'

export class FakeProbes {
  /** Lane addresses that answer. */
  readonly alive = new Set<string>()
  /** Lane addresses whose kernel answers a knock. */
  readonly kernels = new Set<string>()
  /** Sockets that are open now, by own address. */
  readonly open = new Map<string, ProbeSocketEvents>()
  readonly sent: { readonly from: string; readonly to: string; readonly bytes: Buffer }[] = []
  opened = 0

  readonly openSocket: OpenProbeSocket = (address, _port, events) => {
    this.opened += 1
    this.open.set(address, events)
    queueMicrotask(() => events.onReady())
    return {
      send: (bytes, to, port) => {
        this.sent.push({ from: address, to, bytes })
        const probe = decodeProbe(bytes)
        if (probe?.type !== 'question' || port !== LANE_PROBE_PORT || !this.alive.has(to)) return
        queueMicrotask(() => this.receive(address, to, encodeProbe({ ...probe, type: 'answer' })))
      },
      knock: (to, port, onAnswer) => {
        if (port === LANE_PROBE_PORT && this.kernels.has(to)) queueMicrotask(onAnswer)
        return () => undefined
      },
      close: () => {
        if (this.open.get(address) === events) this.open.delete(address)
      },
    }
  }

  /** Something arrives at a socket. */
  receive(at: string, from: string, bytes: Buffer, port = LANE_PROBE_PORT): void {
    this.open.get(at)?.onMessage(bytes, { address: from, port })
  }

  fail(at: string, message: string): void {
    const events = this.open.get(at)
    this.open.delete(at)
    events?.onError(new Error(message))
  }
}
