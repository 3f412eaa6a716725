/** The next-hop objects and groups of this network namespace, over rtnetlink. */
import { ROUTE_PROTOCOL } from '../../model/model.ts'
import { isNotFound, KernelError } from '../kernel.ts'
import { NLM_F_CREATE, NLM_F_REPLACE, RtnetlinkSocket, watchGroups, type KernelMessage } from './netlink-socket.ts'
import { deviceNames, needDevice } from './rtnetlink-link.ts'
import type { RtnetlinkInit } from './rtnetlink.ts'
import { checkGroup, checkHop, checkNextHopId, checkReplacement, isOurId } from './check-next-hop.ts'
import {
  type Bucket,
  type NextHopFeatures,
  type NextHopGroup,
  type NextHopListing,
  type NextHopObject,
  type NextHopTable,
  formatGroup,
  formatHop,
  formatNextHopDeletion,
} from './next-hop-table.ts'
import * as codec from './next-hop-codec.ts'
import { watchNextHops } from './next-hop-codec.ts'

/** Multicast group of link notifications. */
const LINK_GROUP = 1
const LIST = 'ip nexthop show'
/** The id of a group that is never created. Listing its buckets shows whether the kernel knows the request. */
const NO_GROUP = 0xffffffff

export class RtnetlinkNextHops implements NextHopTable {
  readonly #socket: RtnetlinkSocket
  readonly #watches = new Set<() => void>()

  /** Uses the network namespace in which the process is at the time of the call. Throws KernelError. */
  constructor(init: RtnetlinkInit = {}) {
    this.#socket = new RtnetlinkSocket(init.timeoutMs)
  }

  async features(signal?: AbortSignal): Promise<NextHopFeatures> {
    const objects = await isKnown(this.#present(NO_GROUP, LIST, signal))
    return { objects, resilient: objects && (await isKnown(this.#bucketDump(NO_GROUP, signal))) }
  }

  async list(signal?: AbortSignal): Promise<NextHopListing> {
    const names = await deviceNames(this.#socket, signal)
    const hops: NextHopObject[] = []
    const groups: NextHopGroup[] = []
    for (const { data } of await this.#all(signal)) {
      const listed = codec.decodeNextHop(data, (index) => names.get(index))
      if (listed?.item === undefined || !isOurs(listed)) continue
      if ('members' in listed.item) groups.push(listed.item)
      else hops.push(listed.item)
    }
    return { hops: hops.sort(byId), groups: groups.sort(byId) }
  }

  async replaceHop(hop: NextHopObject, signal?: AbortSignal): Promise<void> {
    const operation = formatHop(hop)
    checkHop(hop)
    const { index } = await needDevice(this.#socket, hop.device, operation, signal)
    await this.#checkPresent(hop, operation, signal)
    await this.#replace(codec.encodeHop(hop, index), operation, signal)
  }

  async replaceGroup(group: NextHopGroup, signal?: AbortSignal): Promise<void> {
    const operation = formatGroup(group)
    checkGroup(group)
    await this.#checkPresent(group, operation, signal)
    try {
      await this.#replace(codec.encodeGroup(group), operation, signal)
    } catch (error) {
      throw error instanceof KernelError && error.code === 'EINVAL'
        ? await this.#whyRefused(group, error, signal)
        : error
    }
  }

  async remove(id: number, signal?: AbortSignal): Promise<void> {
    const operation = formatNextHopDeletion({ id })
    checkNextHopId(id, operation)
    const present = await this.#present(id, operation, signal)
    if (present === undefined || !isOurs(present)) throw new KernelError('ENOENT', operation, 'there is none of ours')
    await this.#socket.request({ type: codec.RTM_DELNEXTHOP, body: codec.encodeNextHopId(id), operation, signal })
  }

  async buckets(id: number, signal?: AbortSignal): Promise<readonly Bucket[]> {
    const operation = `ip nexthop bucket show id ${id}`
    checkNextHopId(id, operation)
    const present = await this.#present(id, operation, signal)
    if (present === undefined || !isOurs(present)) throw new KernelError('ENOENT', operation, 'there is none of ours')
    const { item } = present
    if (item === undefined || !('members' in item) || item.kind !== 'resilient') {
      throw new KernelError('EINVAL', operation, 'only resilient groups have buckets')
    }
    const messages = await this.#bucketDump(id, signal)
    const found = messages.map(({ data }) => codec.decodeBucket(data, id)).filter((one) => one !== undefined)
    return found.sort((a, b) => a.index - b.index)
  }

  onChange(listener: () => void): () => void {
    const stops = [watchGroups([LINK_GROUP], listener), watchNextHops(listener)]
    const stop = (): void => stops.forEach((one) => one())
    this.#watches.add(stop)
    return () => {
      this.#watches.delete(stop)
      stop()
    }
  }

  close(): void {
    for (const stop of this.#watches) stop()
    this.#watches.clear()
    this.#socket.close()
  }

  async #all(signal: AbortSignal | undefined): Promise<readonly KernelMessage[]> {
    const request = { type: codec.RTM_GETNEXTHOP, body: codec.encodeNextHopDump(), operation: LIST, signal }
    try {
      return await this.#socket.dump(request)
    } catch (error) {
      if (isUnsupported(error)) return []
      throw error
    }
  }

  /** Returns the item with the id, of any program. */
  async #present(
    id: number,
    operation: string,
    signal: AbortSignal | undefined,
  ): Promise<codec.ListedNextHop | undefined> {
    const request = { type: codec.RTM_GETNEXTHOP, body: codec.encodeNextHopId(id), operation, signal }
    try {
      const [answer] = await this.#socket.request(request)
      return answer === undefined ? undefined : codec.decodeNextHop(answer.data, () => undefined)
    } catch (error) {
      if (isNotFound(error)) return undefined
      throw error
    }
  }

  /** Refuses ids of other programs, because the kernel would replace their items too. */
  async #checkPresent(
    item: NextHopObject | NextHopGroup,
    operation: string,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const present = await this.#present(item.id, operation, signal)
    if (present === undefined) return
    if (!isOurs(present)) {
      throw new KernelError('EEXIST', operation, `a program with protocol number ${present.protocol} uses this id`)
    }
    if (present.item !== undefined) checkReplacement(present.item, item, operation)
  }

  #replace(body: Uint8Array[], operation: string, signal: AbortSignal | undefined): Promise<unknown> {
    const flags = NLM_F_CREATE | NLM_F_REPLACE
    return this.#socket.request({ type: codec.RTM_NEWNEXTHOP, flags, body, operation, signal })
  }

  #bucketDump(id: number, signal: AbortSignal | undefined): Promise<readonly KernelMessage[]> {
    const operation = `ip nexthop bucket show id ${id}`
    return this.#socket.dump({ type: codec.RTM_GETNEXTHOPBUCKET, body: codec.encodeNextHopId(id), operation, signal })
  }

  /** Finds the reason, because the kernel uses one error number for all of them. */
  async #whyRefused(group: NextHopGroup, error: KernelError, signal: AbortSignal | undefined): Promise<KernelError> {
    const { operation } = error
    if (group.kind === 'resilient' && !(await this.features(signal)).resilient) {
      return new KernelError('EOPNOTSUPP', operation, 'this kernel has no resilient groups', { cause: error })
    }
    for (const { id } of group.members) {
      const member = await this.#present(id, operation, signal)
      if (member === undefined) return new KernelError('ENOENT', operation, `no next hop ${id}`, { cause: error })
    }
    return error
  }
}

async function isKnown(question: Promise<unknown>): Promise<boolean> {
  try {
    await question
    return true
  } catch (error) {
    if (isUnsupported(error)) return false
    throw error
  }
}

function isUnsupported(error: unknown): boolean {
  return error instanceof KernelError && error.code === 'EOPNOTSUPP'
}

function isOurs({ id, protocol }: codec.ListedNextHop): boolean {
  return isOurId(id) && protocol === ROUTE_PROTOCOL
}

function byId(a: { readonly id: number }, b: { readonly id: number }): number {
  return a.id - b.id
}
