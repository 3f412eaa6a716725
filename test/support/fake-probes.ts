/** Probe sockets in memory. The test decides which far ends answer. */
import {
  type NoticeStep,
  type Probe,
  type SizedProbe,
  decodeNotice,
  decodeProbe,
  encodeNotice,
  encodeProbe,
} from '../../kernel/probing/probe-packet.ts'
import type { OpenProbeSocket, ProbeSocketEvents } from '../../kernel/probing/probe-socket.ts'
import { LANE_PROBE_PORT } from '../../model/kernel-ids.ts'
import type { Clock } from '../../reconcile/clock.ts'

export class FakeProbes {
  /** The lane addresses that answer. */
  readonly alive = new Set<string>()
  /** The lane addresses whose kernel answers a probeTcp. */
  readonly kernels = new Set<string>()
  /** The lane addresses that confirm each notice of these steps. */
  readonly receipts = new Map<string, readonly NoticeStep[]>()
  /** The octets of the largest packet that reaches a lane address. Absent: any size does. */
  readonly widths = new Map<string, number>()
  /** The size that a far end reports for its path to here. */
  carries = 0
  /** The sockets that are open now, by their own address. */
  readonly open = new Map<string, ProbeSocketEvents>()
  readonly sent: { readonly from: string; readonly to: string; readonly bytes: Buffer }[] = []
  opened = 0
  /** How long an answer takes, by that clock. */
  delay: { readonly clock: Clock; readonly ms: number } | undefined

  readonly openSocket: OpenProbeSocket = (address, ownPort, events) => {
    this.opened += 1
    this.open.set(address, events)
    queueMicrotask(() => events.onReady())
    return {
      send: (bytes, to, port) => {
        this.sent.push({ from: address, to, bytes })
        const notice = decodeNotice(bytes)
        if (notice?.type === 'notice' && this.receipts.get(to)?.includes(notice.step) === true) {
          queueMicrotask(() => this.receive(address, to, encodeNotice({ ...notice, type: 'receipt' }), port))
        }
        const reply = this.#answerOf(bytes, to)
        if (reply === undefined || port !== ownPort || !this.alive.has(to)) return
        const answer = (): void => this.receive(address, to, encodeProbe(reply), port)
        if (this.delay === undefined) queueMicrotask(answer)
        else this.delay.clock.setTimer(this.delay.ms, answer)
      },
      probeTcp: (to, port, onAnswer) => {
        if (port === ownPort && this.kernels.has(to)) queueMicrotask(onAnswer)
        return () => undefined
      },
      close: () => {
        if (this.open.get(address) === events) this.open.delete(address)
      },
    }
  }

  #answerOf(bytes: Buffer, to: string): Probe | SizedProbe | undefined {
    const probe = decodeProbe(bytes)
    if (probe?.type === 'question') return { ...probe, type: 'answer' }
    if (probe?.type !== 'sizedQuestion' || probe.size > (this.widths.get(to) ?? Infinity)) return undefined
    return { ...probe, type: 'sizedAnswer', carries: this.carries }
  }

  /** Delivers a packet to a socket. */
  receive(at: string, from: string, bytes: Buffer, port: number = LANE_PROBE_PORT): void {
    this.open.get(at)?.onMessage(bytes, { address: from, port })
  }

  fail(at: string, message: string): void {
    const events = this.open.get(at)
    this.open.delete(at)
    events?.onError(new Error(message))
  }
}
