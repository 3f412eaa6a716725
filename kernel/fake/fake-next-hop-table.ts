/**
 * The next-hop objects and groups of a fake node; its FakeRouteTable makes it. They are removed with their devices
 * there, and the routes that name them are removed with them.
 */
import { KernelError } from '../errors.ts'
import { checkNextHopId } from '../route/nexthop/check-next-hop.ts'
import { formatGroup, formatHop, formatNextHopDeletion } from '../route/nexthop/format-next-hop.ts'
import type * as item from '../route/nexthop/next-hop-table.ts'
import type { FakeNextHops } from './fake-next-hops.ts'

/** What the fake node lends. */
export interface FakeNextHopDeps {
  readonly state: FakeNextHops
  readonly features: item.NextHopFeatures
  readonly read: <T>(operation: string, signal: AbortSignal | undefined, action: (operation: string) => T) => Promise<T>
  readonly change: (
    operation: string,
    signal: AbortSignal | undefined,
    action: (operation: string) => void,
  ) => Promise<void>
  /** These ids are gone. */
  readonly gone: (ids: readonly number[]) => void
  readonly onChange: (listener: () => void) => () => void
}

export class FakeNextHopTable implements item.NextHopTable {
  readonly #deps: FakeNextHopDeps
  readonly #stops = new Set<() => void>()

  constructor(deps: FakeNextHopDeps) {
    this.#deps = deps
  }

  features(signal?: AbortSignal): Promise<item.NextHopFeatures> {
    return this.#deps.read('ip nexthop show', signal, () => this.#deps.features)
  }

  list(signal?: AbortSignal): Promise<item.NextHopListing> {
    return this.#deps.read('ip nexthop show', signal, () => this.#deps.state.list())
  }

  replaceHop(hop: item.NextHopObject, signal?: AbortSignal): Promise<void> {
    return this.#deps.change(formatHop(hop), signal, (operation) => {
      this.#need('objects', operation)
      this.#deps.state.replaceHop(hop, operation)
    })
  }

  replaceGroup(group: item.NextHopGroup, signal?: AbortSignal): Promise<void> {
    return this.#deps.change(formatGroup(group), signal, (operation) => {
      this.#need(group.kind === 'plain' ? 'objects' : 'resilient', operation)
      this.#deps.state.replaceGroup(group, operation)
    })
  }

  remove(id: number, signal?: AbortSignal): Promise<void> {
    return this.#deps.change(formatNextHopDeletion({ id }), signal, (operation) => {
      checkNextHopId(id, operation)
      this.#need('objects', operation)
      this.#deps.gone(this.#deps.state.remove(id, operation))
    })
  }

  buckets(id: number, signal?: AbortSignal): Promise<readonly item.Bucket[]> {
    return this.#deps.read(`ip nexthop bucket show id ${id}`, signal, (operation) => {
      checkNextHopId(id, operation)
      this.#need('objects', operation)
      return this.#deps.state.buckets(id, operation)
    })
  }

  onChange(listener: () => void): () => void {
    const stop = this.#deps.onChange(listener)
    this.#stops.add(stop)
    return () => {
      this.#stops.delete(stop)
      stop()
    }
  }

  close(): void {
    for (const stop of this.#stops) stop()
    this.#stops.clear()
  }

  /** Something flows through a bucket from now on: only then does the kernel keep it where it is. */
  carry(group: number, bucket: number): void {
    this.#deps.state.carry(group, bucket)
  }

  /** Another program uses an id in our range. */
  putForeign(id: number): void {
    this.#deps.state.putForeign(id)
  }

  #need(feature: keyof item.NextHopFeatures, operation: string): void {
    if (this.#deps.features[feature]) return
    throw new KernelError('EOPNOTSUPP', operation, 'not supported by this kernel')
  }
}
