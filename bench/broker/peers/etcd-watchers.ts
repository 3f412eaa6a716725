/** Watches of one etcd key, each on a connection of its own, and the writer of that key. */
import { createSecureContext } from 'node:tls'
import { eventually } from '../../../test/support/eventually.ts'
import { type Counts, Histogram } from '../histogram.ts'
import { LeanChannel } from '../lean/lean-channel.ts'
import { agesOf, mark } from '../mark.ts'

const AT_ONCE = 20
const PAYLOAD = 'x'.repeat(130)
const TIMEOUT_MS = 30_000

export class EtcdWatchers {
  readonly #channels: LeanChannel[] = []
  readonly #ages = new Histogram()
  readonly #context = createSecureContext({})

  async open({ port, count }: { readonly port: number; readonly count: number }): Promise<void> {
    for (let left = count; left > 0; left -= AT_ONCE) {
      await Promise.all(Array.from({ length: Math.min(AT_ONCE, left) }, () => this.#watch(port)))
    }
  }

  change(): void {
    const call = this.#channels[0]?.call(
      '/etcdserverpb.KV/Put',
      () => undefined,
      () => undefined,
    )
    call?.send(Buffer.concat([field(1, Buffer.from('change')), field(2, Buffer.from(`${mark()}${PAYLOAD}`))]))
    call?.end()
  }

  ages(): Counts {
    return this.#ages.take()
  }

  close(): void {
    for (const channel of this.#channels) channel.close()
    this.#channels.length = 0
  }

  async #watch(port: number): Promise<void> {
    let created = false
    const init = { port, servername: 'localhost', context: this.#context, timeoutMs: TIMEOUT_MS }
    const channel = new LeanChannel(init, () => undefined)
    this.#channels.push(channel)
    const take = (bytes: Buffer): void => {
      created = true
      for (const age of agesOf(bytes)) this.#ages.add(age)
    }
    const call = channel.call('/etcdserverpb.Watch/Watch', take, () => undefined)
    call.send(field(1, field(1, Buffer.from('change'))))
    const isOver = (): boolean => created || channel.failure !== undefined
    await eventually(isOver, { deadlineMs: TIMEOUT_MS, intervalMs: 5, say: 'a watch at etcd' })
    if (channel.failure !== undefined) throw new Error(channel.failure)
  }
}

/** A length-delimited field of protobuf. */
function field(number: number, bytes: Buffer): Buffer {
  const length = bytes.length < 128 ? [bytes.length] : [(bytes.length & 0x7f) | 0x80, bytes.length >> 7]
  return Buffer.concat([Buffer.from([(number << 3) | 2, ...length]), bytes])
}
