/**
 * Who calls this process itself by a lane, which can be where it runs in a pod of a member: its status page is not for
 * pods of other members. docs/decisions/0040-status-pages.md
 */
import type { Prefix } from '../../model/addresses/ip.ts'
import { isSourceAmong, laneSourcesAt } from '../../model/lanes/lane-callers.ts'
import type { ClusterSpec } from '../../model/objects.ts'
import { interfaceNetworks } from '../../runtime/machine-network.ts'
import type { RecordLog } from '../log/record-log.ts'
import { clusterSpec } from '../records/cluster-records.ts'

/** Of one clusterset. */
export class LaneCallers {
  readonly #log: RecordLog
  readonly #addresses: () => readonly string[]
  readonly #stop: () => void
  #sources: readonly Prefix[] | undefined

  /** `addresses`: this process's own. */
  constructor(log: RecordLog, addresses: () => readonly string[] = ownAddresses) {
    this.#log = log
    this.#addresses = addresses
    this.#stop = log.onCommit((changes) => {
      // The Cluster record of a member changes with its row, or with another one's.
      if (changes.some(({ scope }) => scope === 'member')) this.#sources = undefined
    })
  }

  /** Whether what comes from this address has come by a lane. */
  comeByLane(source: string): boolean {
    this.#sources ??= laneSourcesAt(this.#addresses(), this.#members())
    return isSourceAmong(this.#sources, source)
  }

  close(): void {
    this.#stop()
  }

  #members(): ClusterSpec[] {
    return this.#log.list('member').flatMap(({ key }) => clusterSpec(this.#log, key) ?? [])
  }
}

function ownAddresses(): string[] {
  return interfaceNetworks().flatMap((text) => text.split('/')[0] ?? [])
}
