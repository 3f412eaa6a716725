/**
 * Reads a call message by message. A stream's own async iterator destroys the stream when it fails, and what was to be
 * written to it is lost: acknowledgements under way, and with them the status that the call ends with.
 */
import type { Readable } from 'node:stream'

export class PulledMessages {
  readonly #call: Readable
  #ended = false
  #wake: () => void = () => undefined

  constructor(call: Readable) {
    this.#call = call
    call.on('readable', () => this.#wake())
    for (const event of ['end', 'close'] as const) {
      call.on(event, () => {
        this.#ended = true
        this.#wake()
      })
    }
  }

  /** The next message; undefined after the last. Rejects with the signal's reason. */
  async next(signal: AbortSignal): Promise<Buffer | undefined> {
    for (;;) {
      signal.throwIfAborted()
      const message = this.#call.read() as Buffer | null
      if (message !== null) return message
      if (this.#ended) return undefined
      await this.#woken(signal)
    }
  }

  #woken(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        signal.removeEventListener('abort', done)
        this.#wake = () => undefined
        resolve()
      }
      this.#wake = done
      signal.addEventListener('abort', done, { once: true })
    })
  }
}
