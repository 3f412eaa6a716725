/**
 * What each member may be sent of others: only what belongs to members with which it links (model/lanes/topology.ts). A
 * member that sees everything, as with mode full or as a hub, has no sight and costs nothing more. A record of the
 * broker's own about a service is for those who see an exporter of it.
 *
 * After a change of the topology every stream starts again without state: its snapshot lacks what the member may no
 * longer have, and the member withdraws that like what its owner has withdrawn. That needs no memory of who had what.
 */
import type { RecordKey, Topology } from '../../model/model.ts'
import { FULL_TOPOLOGY, type LinkEnd, links, looksAtLabels } from '../../model/lanes/lanes.ts'
import { TOPOLOGY_KEY, topologyInForce } from '../records/records.ts'
import { type Change, type RecordLog, isLive } from '../store/store.ts'

export interface Sight {
  /** Equal for members that see the same, as long as the topology stays. */
  readonly id: string
  /** Whether the member may have records of this one. */
  sees(owner: string): boolean
  /** Whether the member may have the record. */
  shows(key: RecordKey): boolean
}

export class Sights {
  readonly #log: RecordLog
  readonly #onChange: () => void
  readonly #stop: () => void
  #topology: Topology = FULL_TOPOLOGY
  #version = 0
  #changedAt = 0
  /** Labels of members, only if the topology looks at them. */
  readonly #labels = new Map<string, string>()
  /** Whether all members that may read the first one's records may read the second one's, by both ids. */
  readonly #readAlike = new Map<string, boolean>()

  /** `onChange` is called after each change. It runs before other callbacks of the same commit. */
  constructor(log: RecordLog, onChange: () => void) {
    this.#log = log
    this.#onChange = onChange
    this.#read()
    // Labels may have changed while no broker ran.
    if (looksAtLabels(this.#topology)) this.#changedAt = log.revision
    this.#stop = log.onCommit((changes) => this.#take(changes))
  }

  close(): void {
    this.#stop()
  }

  /** Higher after each change. A stream of an earlier version starts again. */
  get version(): number {
    return this.#version
  }

  /** A stream that resumes from an earlier revision starts without state. */
  get changedAt(): number {
    return this.#changedAt
  }

  /** Undefined if the member may have everything. */
  of(member: string): Sight | undefined {
    const { mode, groups = [], hubs = [] } = this.#topology
    if (mode === 'full' || (mode === 'hub-and-spoke' && hubs.includes(member))) return undefined
    const own =
      mode === 'groups' ? groups.flatMap(({ name, clusters }) => (clusters.includes(member) ? [name] : [])) : []
    // Members of the same groups see the same, and share what is made for them.
    const id = own.length > 0 ? `groups ${own.join()}` : `member ${member}`
    const sees = (owner: string): boolean => this.#link(member, owner)
    return { id: `${this.#version} ${id}`, sees, shows: (key) => this.#isShown(key, sees) }
  }

  /**
   * Whether all members that may read what the first one reports may know that the second one exports something. Always
   * true for itself.
   */
  isReadAlike(reporter: string, exporter: string): boolean {
    if (this.#topology.mode === 'full' || reporter === exporter) return true
    const key = `${reporter} ${exporter}`
    const known = this.#readAlike.get(key)
    if (known !== undefined) return known
    const isAlike = this.#readersOf(reporter).every((reader) => this.#link(reader, exporter))
    this.#readAlike.set(key, isAlike)
    return isAlike
  }

  /** The same for a service of several exporters: each reader may know of one of them. */
  isReadAlikeByAny(reporter: string, exportersOf: () => readonly string[]): boolean {
    if (this.#topology.mode === 'full') return true
    const exporters = exportersOf()
    if (exporters.some((exporter) => this.isReadAlike(reporter, exporter))) return true
    return this.#readersOf(reporter).every((reader) => exporters.some((exporter) => this.#link(reader, exporter)))
  }

  #readersOf(reporter: string): string[] {
    const live = this.#log.list('member').flatMap(({ key, value }) => (isLive(value) ? [key] : []))
    return live.filter((id) => this.#link(id, reporter))
  }

  #isShown({ cluster, kind, namespace, name }: RecordKey, sees: (owner: string) => boolean): boolean {
    if (cluster !== '') return sees(cluster)
    if (kind !== 'ClusterSetIP') return true
    return this.#log.get('serviceIp', `${namespace}/${name}`)?.exporters.some(sees) === true
  }

  #link(a: string, b: string): boolean {
    return a === b || links(this.#topology, this.#end(a), this.#end(b)).linked
  }

  #end(id: string): LinkEnd {
    return { id, labels: this.#log.get('member', id)?.facts.labels }
  }

  #take(changes: readonly Change[]): void {
    const members = changes.filter(({ scope }) => scope === 'member').map(({ key }) => key)
    if (members.length > 0) this.#readAlike.clear()
    if (changes.some(({ scope, key }) => scope === 'record' && key === TOPOLOGY_KEY)) this.#read()
    else if (!looksAtLabels(this.#topology) || !this.#noteLabels(members)) return
    else this.#changedAt = this.#log.revision
    this.#version += 1
    this.#onChange()
  }

  #read(): void {
    this.#topology = topologyInForce(this.#log).topology
    this.#changedAt = this.#log.row('record', TOPOLOGY_KEY)?.revision ?? 0
    this.#readAlike.clear()
    this.#labels.clear()
    if (looksAtLabels(this.#topology)) this.#noteLabels(this.#log.list('member').map(({ key }) => key))
  }

  /** Returns whether labels of a member have changed that was known before: a new one had no records that others see. */
  #noteLabels(members: readonly string[]): boolean {
    let hasChanged = false
    for (const id of members) {
      const labels = this.#log.get('member', id)?.facts.labels ?? {}
      const text = JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)))
      const before = this.#labels.get(id)
      if (before !== undefined && before !== text) hasChanged = true
      this.#labels.set(id, text)
    }
    return hasChanged
  }
}
