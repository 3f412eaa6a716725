/**
 * The clustersets of a broker for the CLI: works on the broker's store, beside the running broker, which sees changes
 * at once.
 */
import { RefusedError } from '../../protocol/protocol.ts'
import { isDnsLabel } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { type AuditedCommandDeps, auditedCommand, localOperator } from '../audit/audit.ts'
import { checkRanges } from '../config/config.ts'
import { type OpenedState, StateError, isLive, openBeside } from '../store/store.ts'
import {
  type NamedClusterset,
  clustersetDir,
  clustersetRows,
  createClusterset,
  removeClusterset,
  unknownClusterset,
} from './clusterset-rows.ts'

export interface CreateClustersetInit {
  readonly name: string
  /** If absent, the range that it had before applies, or else that of the broker's own clusterset. */
  readonly globalRange?: string
  readonly clustersetIpRange?: string
}

export interface ClustersetSummary {
  readonly name: string
  /**
   * `own`: the broker's own. `new`: no broker has opened it yet. `removed`: it is not served, but its store is kept.
   */
  readonly state: 'own' | 'listed' | 'new' | 'removed'
  readonly globalRange: string
  readonly clustersetIpRange: string
  /** Absent if its store cannot be read here, or does not exist. */
  readonly members?: number
  readonly createdAtMs?: number
}

export interface Done {
  /** The same had been done before, and nothing was changed. */
  readonly repeated: boolean
}

const OPENED_MS = 8000
const LOOK_MS = 100

export class ClustersetStore {
  readonly #opened: OpenedState
  readonly #stateDir: string
  readonly #clock: Clock
  readonly #audited: AuditedCommandDeps

  private constructor(opened: OpenedState, stateDir: string, clock: Clock) {
    this.#opened = opened
    this.#stateDir = stateDir
    this.#clock = clock
    this.#audited = { log: opened.log, clock, who: localOperator() }
  }

  /** Takes the state directory of the broker. Throws StateError if there is no state yet, or if it cannot be used. */
  static async open(stateDir: string, clock: Clock): Promise<ClustersetStore> {
    return new ClustersetStore(await openBeside(stateDir, clock), stateDir, clock)
  }

  /** The broker's own first, then the others by name. */
  async list(): Promise<ClustersetSummary[]> {
    const { log, settings } = this.#opened
    await log.refresh()
    const { clusterset: name, globalRange, clustersetIpRange } = settings
    const members = liveMembers(this.#opened)
    const own = { name, state: 'own' as const, globalRange, clustersetIpRange, members }
    const others: ClustersetSummary[] = []
    for (const row of clustersetRows(log)) others.push(await this.#summary(row))
    return [own, ...others]
  }

  /** Throws RefusedError as createClusterset() does, and BrokerConfigError for invalid ranges. */
  async create(init: CreateClustersetInit): Promise<ClustersetSummary & Done> {
    const { log, settings } = this.#opened
    const { name } = init
    await log.refresh()
    const known = log.get('clusterset', name) ?? settings
    const ranges = {
      globalRange: init.globalRange ?? known.globalRange,
      clustersetIpRange: init.clustersetIpRange ?? known.clustersetIpRange,
    }
    checkRanges(ranges)
    const details = { ...ranges }
    const created = await auditedCommand(
      this.#audited,
      { act: 'clusterset.create', subject: name, details },
      (tx) => createClusterset(tx, { name, ...ranges }, this.#clock.now()),
      (done) => ({ details: { ...details, repeated: !done } }),
    )
    const row = log.get('clusterset', name)
    if (row === undefined) throw unknownClusterset(log, name)
    return { ...(await this.#summary({ ...row, name })), repeated: !created }
  }

  /** Whether a broker has opened this clusterset. Waits a few seconds for a running broker to do so. */
  async opened(name: string, signal: AbortSignal): Promise<boolean> {
    const { log } = this.#opened
    const until = this.#clock.monotonic() + OPENED_MS
    for (;;) {
      await log.refresh()
      if (log.get('clusterset', name)?.openedAtMs !== undefined) return true
      if (this.#clock.monotonic() >= until) return false
      signal.throwIfAborted()
      await new Promise<void>((resolve) => this.#clock.setTimer(LOOK_MS, resolve))
    }
  }

  /**
   * Stops serving the clusterset. Its store is kept. Throws RefusedError if there is none of this name. Unless forced,
   * also throws if it has members or their number is unknown.
   */
  async remove(name: string, { force }: { readonly force: boolean }): Promise<Done> {
    const { log } = this.#opened
    await log.refresh()
    const members = await this.#members(name)
    const details = { force }
    const removed = await auditedCommand(
      this.#audited,
      { act: 'clusterset.remove', subject: name, details },
      (tx) => {
        const row = tx.get('clusterset', name)
        if (row !== undefined && row.removedAtMs === undefined && !force) refuseMembers(name, members)
        return removeClusterset(tx, name, this.#clock.now())
      },
      (done) => ({ details: { ...details, repeated: !done } }),
    )
    return { repeated: !removed }
  }

  /** The state directory of a clusterset. Throws RefusedError if there is none of this name. */
  stateOf(name: string): string {
    const { log, settings } = this.#opened
    if (!isDnsLabel(name)) {
      const text = `clusterset ${JSON.stringify(name.slice(0, 100))}: expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -`
      throw new RefusedError('InvalidValue', 'clusterset', text)
    }
    if (name === settings.clusterset) return this.#stateDir
    if (log.get('clusterset', name) === undefined) throw unknownClusterset(log, name)
    return clustersetDir(this.#stateDir, name)
  }

  close(): Promise<void> {
    return this.#opened.close()
  }

  async #summary(row: NamedClusterset): Promise<ClustersetSummary> {
    const { name, globalRange, clustersetIpRange, createdAtMs, removedAtMs, openedAtMs } = row
    const state = removedAtMs !== undefined ? 'removed' : openedAtMs === undefined ? 'new' : 'listed'
    const members = await this.#members(name)
    const counted = typeof members === 'number' ? { members } : {}
    return { name, state, globalRange, clustersetIpRange, ...counted, createdAtMs }
  }

  /** The number of its members, or a text that says why it is unknown. */
  async #members(name: string): Promise<number | string> {
    const row = this.#opened.log.get('clusterset', name)
    // No cluster can have joined a clusterset that was never opened.
    if (row === undefined || row.openedAtMs === undefined) return 0
    try {
      const opened = await openBeside(clustersetDir(this.#stateDir, name), this.#clock)
      try {
        return liveMembers(opened)
      } finally {
        await opened.close()
      }
    } catch (error) {
      if (error instanceof StateError) return messageOf(error)
      throw error
    }
  }
}

function liveMembers({ log }: OpenedState): number {
  return log.list('member').filter(({ value }) => isLive(value)).length
}

function refuseMembers(name: string, members: number | string): void {
  if (members === 0) return
  const what =
    typeof members === 'number' ? `it has ${members} members: evict them first` : `${members}: it may have members`
  const text = `clusterset ${JSON.stringify(name)}: ${what}, or say --force`
  throw new RefusedError('ClustersetInUse', 'clusterset', text)
}
