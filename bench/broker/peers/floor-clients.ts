/** Plain TLS connections that note the age of each change on arrival. */
import { type TLSSocket, connect } from 'node:tls'
import { type Counts, Histogram } from '../histogram.ts'
import { agesOf, mark } from '../mark.ts'

const AT_ONCE = 50
/** As long as a change of the broker is on the wire. */
const PAYLOAD = 'x'.repeat(130)

export class FloorClients {
  readonly #sockets: TLSSocket[] = []
  readonly #ages = new Histogram()

  async open({ port, count }: { readonly port: number; readonly count: number }): Promise<void> {
    let left = count
    const work = async (): Promise<void> => {
      while ((left -= 1) >= 0) this.#sockets.push(await this.#connect(port))
    }
    await Promise.all(Array.from({ length: AT_ONCE }, work))
  }

  change(): void {
    this.#sockets[0]?.write(`${mark()}${PAYLOAD}`)
  }

  ages(): Counts {
    return this.#ages.take()
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy()
    this.#sockets.length = 0
  }

  #connect(port: number): Promise<TLSSocket> {
    return new Promise((resolve, reject) => {
      const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false }, () => resolve(socket))
      socket.setNoDelay(true)
      socket.on('error', reject)
      socket.on('data', (bytes: Buffer) => {
        for (const age of agesOf(bytes)) this.#ages.add(age)
      })
    })
  }
}
