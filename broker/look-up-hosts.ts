/** Where the names lead under which this broker is called. */
import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'

/** Of one name. */
const MAX_ADDRESSES = 8

export type LookUp = (host: string) => Promise<readonly string[]>

/** Asks this machine's resolver. Rejects when it has no answer. */
export const lookUp: LookUp = async (host) => (await lookup(host, { all: true })).map(({ address }) => address)

/**
 * Remembers the last answer about each name: one that has none now still leads somewhere for those who asked before.
 */
export class BrokerHosts {
  readonly #names: readonly string[]
  readonly #lookUp: LookUp
  readonly #known = new Map<string, readonly string[]>()

  /** Takes hosts; those that are addresses need no answer. */
  constructor(hosts: readonly string[], ask: LookUp = lookUp) {
    this.#names = [...new Set(hosts)].filter((host) => isIP(host) === 0)
    this.#lookUp = ask
  }

  /** Addresses of all names, sorted; undefined where there is no name, or none has ever had an answer. */
  async addresses(): Promise<readonly string[] | undefined> {
    await Promise.all(
      this.#names.map(async (name) => {
        const found = await this.#lookUp(name).catch(() => undefined)
        if (found !== undefined) this.#known.set(name, found.slice(0, MAX_ADDRESSES))
      }),
    )
    return this.#known.size === 0 ? undefined : [...new Set([...this.#known.values()].flat())].sort()
  }
}
