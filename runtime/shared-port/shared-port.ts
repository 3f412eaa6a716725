/**
 * One TCP port for two servers of a process: the broker, whose clients ask for HTTP/2, and a relay, whose clients ask
 * for HTTP/1.1 only. The broker accepts, and hands over what is the relay's before any TLS handshake.
 */
import type { Socket } from 'node:net'
import { MAX_HELLO_PIECES, helloProtocols } from './client-hello.ts'

export {
  type HelloProtocols,
  MAX_HELLO_BYTES,
  MAX_HELLO_PIECES,
  MAX_HELLO_RECORDS,
  helloProtocols,
} from './client-hello.ts'

/** Takes a connection on which nothing is read yet. */
export type TakeSocket = (socket: Socket) => void

/** Whose connection it is. `partial`: more of its first message is needed. */
export type Owner = 'first' | 'second' | 'partial'

export class SharedPort {
  #take: TakeSocket | undefined
  /** What the second server has got, and is open. */
  readonly #handed = new Set<Socket>()

  /** Whether the second server takes connections. */
  get isServed(): boolean {
    return this.#take !== undefined
  }

  /** Begins to hand over connections to the second server. Returns the function that ends this. */
  serve(take: TakeSocket): () => void {
    this.#take = take
    return () => {
      if (this.#take === take) this.#take = undefined
    }
  }

  /** Says whose the connection is whose client has sent these octets so far, in so many pieces. */
  ownerOf(bytes: Buffer, pieces: number): Owner {
    const hello = helloProtocols(bytes)
    if (hello.t === 'partial') return pieces < MAX_HELLO_PIECES ? 'partial' : 'first'
    const asks = hello.t === 'known' ? hello.protocols : []
    return asks.includes('http/1.1') && !asks.includes('h2') ? 'second' : 'first'
  }

  /** Hands over a connection. It is destroyed if the second server has ended. */
  handOver(socket: Socket): void {
    if (this.#take === undefined) {
      socket.destroy()
      return
    }
    this.#handed.add(socket)
    socket.once('close', () => this.#handed.delete(socket))
    this.#take(socket)
  }

  /** Ends what the second server has not ended by itself: the port counts as open until then. */
  destroyAll(): void {
    for (const socket of this.#handed) socket.destroy()
  }
}
