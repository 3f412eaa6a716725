/**
 * What each member may be sent of others: only what belongs to members with which it links (model/lanes/topology.ts). A
 * member that sees everything, as with mode full or as a hub, has no sight and costs nothing more. A record of the
 * broker's own is for all: the clusterset IP of a service, with its name, says nothing of who exports it.
 *
 * After a change of the topology every stream starts again without state: its snapshot lacks what the member may no
 * longer have, and the member withdraws that like what its owner has withdrawn. That needs no memory of who had what.
 */
import type { RecordKey, Topology } from '../../model/model.ts'
import { FULL_TOPOLOGY, labelOutcome, links, looksAtLabels } from '../../model/lanes/lanes.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { TOPOLOGY_KEY, topologyInForce } from '../records/records.ts'
import type { Change, RecordLog } from '../store/store.ts'

export interface Sight {
  /** Equal as long as the topology stays. */
  readonly id: string
  /** The member that has it. */
  readonly member: string
  /** Whether the member may have records of this one. */
  sees(owner: string): boolean
  /** The members whose records it may have, itself included. */
  owners(): ReadonlySet<string>
  /** Whether the member may have the record. */
  shows(key: RecordKey): boolean
}

/** Changes of labels that change links count together, after this time. */
const SETTLE_MS = 5000
/** Time between two changes of links by the labels of one member. */
const EVERY_MS = 60_000

export class Sights {
  readonly #log: RecordLog
  readonly #clock: Pick<Clock, 'monotonic' | 'setTimer'>
  readonly #onChange: () => void
  readonly #stop: () => void
  #topology: Topology = FULL_TOPOLOGY
  #version = 0
  #changedAt = 0
  /** The labels by which members link, only if the topology looks at them. */
  readonly #labels = new Map<string, Labelled>()
  #cancel: (() => void) | undefined
  /** Replaced whenever members come or go: what was found by it counts no longer. */
  #members: { readonly count: number } = { count: 0 }

  /** `onChange` is called after each change. It runs before other callbacks of the same commit. */
  constructor(log: RecordLog, clock: Pick<Clock, 'monotonic' | 'setTimer'>, onChange: () => void) {
    this.#log = log
    this.#clock = clock
    this.#onChange = onChange
    this.#read()
    // Labels may have changed while no broker ran.
    if (looksAtLabels(this.#topology)) this.#changedAt = log.revision
    this.#stop = log.onCommit((changes) => this.#take(changes))
  }

  close(): void {
    this.#stop()
    this.#cancel?.()
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
    const { mode, hubs = [] } = this.#topology
    if (mode === 'full' || (mode === 'hub-and-spoke' && hubs.includes(member))) return undefined
    const sees = (owner: string): boolean => this.#link(member, owner)
    // Members of the same groups see the same members, but not the same services of them.
    return {
      id: `${this.#version} member ${member}`,
      member,
      sees,
      owners: this.#ownersBy(sees),
      shows: ({ cluster }) => cluster === '' || sees(cluster),
    }
  }

  /** Found once for as long as the members stay, because a message may look at it thousands of times. */
  #ownersBy(sees: (owner: string) => boolean): () => ReadonlySet<string> {
    let known: { readonly of: object; readonly owners: ReadonlySet<string> } | undefined
    return () => {
      if (known?.of !== this.#members) {
        const owners = this.#log.list('member').flatMap(({ key }) => (sees(key) ? [key] : []))
        known = { of: this.#members, owners: new Set(owners) }
      }
      return known.owners
    }
  }

  #link(a: string, b: string): boolean {
    if (a === b) return true
    const end = (id: string) => ({ id, labels: this.#labels.get(id)?.labels })
    return links(this.#topology, end(a), end(b)).linked
  }

  #take(changes: readonly Change[]): void {
    const members = changes.filter(({ scope }) => scope === 'member').map(({ key }) => key)
    const isGone = changes.some(({ scope, value }) => scope === 'member' && value === undefined)
    const count = this.#log.count('member')
    if (isGone || count !== this.#members.count) this.#members = { count }
    if (changes.some(({ scope, key }) => scope === 'record' && key === TOPOLOGY_KEY)) {
      this.#read()
      this.#changed()
    } else if (members.length > 0 && looksAtLabels(this.#topology)) this.#noteLabels(members)
  }

  #changed(): void {
    this.#version += 1
    this.#onChange()
  }

  #read(): void {
    this.#topology = topologyInForce(this.#log).topology
    this.#changedAt = this.#log.row('record', TOPOLOGY_KEY)?.revision ?? 0
    this.#members = { count: this.#log.count('member') }
    this.#labels.clear()
    if (looksAtLabels(this.#topology)) this.#noteLabels(this.#log.list('member').map(({ key }) => key))
  }

  /**
   * Labels that change no link count at once, and so do those of a new member, which has no records that others see.
   * Others wait: each such change makes every stream start again, so a member causes at most one in EVERY_MS.
   */
  #noteLabels(members: readonly string[]): void {
    for (const id of members) {
      const labels = this.#log.get('member', id)?.facts.labels
      const known = this.#labels.get(id)
      // One without a membership is the same as one that was never there.
      if (labels === undefined) this.#labels.delete(id)
      else if (known === undefined) this.#labels.set(id, { ...this.#outcome(id, labels), changedAtMs: undefined })
      else if (known.labels !== labels) this.#restate(id, labels, known)
    }
  }

  #restate(id: string, labels: Labels, known: Labelled): void {
    const next = this.#outcome(id, labels)
    if (next.outcome === known.outcome) this.#labels.set(id, { ...known, ...next })
    else this.#cancel ??= this.#clock.setTimer(SETTLE_MS, () => this.#settle())
  }

  #outcome(id: string, labels: Labels) {
    return { labels, outcome: labelOutcome(this.#topology, { id, labels }) }
  }

  /** Lets the labels count that have waited. */
  #settle(): void {
    this.#cancel = undefined
    const now = this.#clock.monotonic()
    let [isChanged, isWaiting] = [false, false]
    for (const [id, known] of this.#labels) {
      const labels = this.#log.get('member', id)?.facts.labels
      if (labels === undefined || labels === known.labels) continue
      const next = this.#outcome(id, labels)
      if (next.outcome === known.outcome) this.#labels.set(id, { ...known, ...next })
      else if (known.changedAtMs !== undefined && now - known.changedAtMs < EVERY_MS) isWaiting = true
      else {
        this.#labels.set(id, { ...next, changedAtMs: now })
        isChanged = true
      }
    }
    if (isWaiting) this.#cancel = this.#clock.setTimer(SETTLE_MS, () => this.#settle())
    if (!isChanged) return
    this.#changedAt = this.#log.revision
    this.#members = { ...this.#members }
    this.#changed()
  }
}

type Labels = Readonly<Record<string, string>>

interface Labelled {
  readonly labels: Labels
  /** What of the topology they fulfil, as labelOutcome() gives it. */
  readonly outcome: string
  /** When they last changed a link. Undefined: never. */
  readonly changedAtMs: number | undefined
}
