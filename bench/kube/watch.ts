/** A minimal watch: one request, one JSON object a line, and the time when each was read. */
import { request } from 'node:https'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../../test/support/eventually.ts'
import type { KubeObject, KubeRequest } from '../../test/kube/support/kube-request.ts'
import { readKubeconfig } from '../../test/kube/support/kubeconfig-file.ts'

export interface Seen {
  readonly type: string
  readonly object: KubeObject
  /** When it was read, by performance.now(). */
  readonly at: number
}

export interface Server {
  readonly kubeconfig: string
  readonly api: KubeRequest
}

type Ask = (seen: Seen) => boolean

const DEADLINE_MS = 60_000
/** A watch that lives this long is established. */
const STEADY_MS = 300

export class Watch {
  readonly #waiting = new Set<{ readonly ask: Ask; readonly resolve: (seen: Seen) => void }>()
  readonly #path: string
  readonly #stop = new AbortController()
  #end: Error | undefined

  private constructor(path: string) {
    this.#path = path
  }

  /**
   * Follows a collection from now on. Resolves when the server has begun to answer: for a new kind it answers 429 at
   * first, or ends the watch.
   */
  static open({ kubeconfig, api }: Server, path: string): Promise<Watch> {
    const attempt = async (): Promise<Watch> => {
      const { metadata } = await api.get<{ metadata: { resourceVersion: string } }>(`${path}?limit=1`)
      return Watch.#open(kubeconfig, path, metadata.resourceVersion)
    }
    return eventually(attempt, { intervalMs: 200, say: `the watch of ${path}` })
  }

  static async #open(kubeconfig: string, path: string, version: string): Promise<Watch> {
    const watch = new Watch(path)
    const { url, ca, credentials } = readKubeconfig(kubeconfig)
    if ('token' in credentials) throw new Error('expected a client certificate')
    const { certificate: cert, key } = credentials
    const { signal } = watch.#stop
    const asked = request(new URL(`${path}?watch=true&resourceVersion=${version}`, url), {
      ca,
      cert,
      key,
      agent: false,
      signal,
    })
    asked.end()
    const [answer] = (await once(asked, 'response')) as [IncomingMessage]
    if (answer.statusCode !== 200) {
      watch.close()
      throw new Error(`watch of ${path}: ${answer.statusCode ?? 0}`)
    }
    asked.on('error', (error) => (watch.#end ??= error))
    void watch.#read(answer)
    await sleep(STEADY_MS)
    if (watch.#end !== undefined) throw watch.#end
    return watch
  }

  /** The first later event for which `ask` is true. Call it before the action that causes the event. */
  next(what: string, ask: Ask, deadlineMs = DEADLINE_MS): Promise<Seen> {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => {
        this.#waiting.delete(waiting)
        reject(this.#end ?? new Error(`${what} did not come within ${deadlineMs} ms (watch of ${this.#path})`))
      }, deadlineMs)
      const waiting = {
        ask,
        resolve: (seen: Seen) => {
          clearTimeout(late)
          resolve(seen)
        },
      }
      this.#waiting.add(waiting)
    })
  }

  close(): void {
    this.#stop.abort()
  }

  async #read(answer: IncomingMessage): Promise<void> {
    try {
      for await (const line of createInterface({ input: answer })) {
        const { type, object } = JSON.parse(line) as Omit<Seen, 'at'>
        this.#take({ type, object, at: performance.now() })
      }
      this.#end = new Error(`the watch of ${this.#path} has ended`)
    } catch (error) {
      this.#end = error as Error
    }
  }

  #take(seen: Seen): void {
    for (const waiting of this.#waiting) {
      if (!waiting.ask(seen)) continue
      this.#waiting.delete(waiting)
      waiting.resolve(seen)
    }
  }
}
