/** The commands of operators on the clustersets of a broker. They work on the state of the broker's own clusterset. */
import type { ClustersetSummary, CreateClustersetInit, CreatedClusterset } from '../../protocol/admin/admin.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { type AuditedCommandDeps, auditedCommand } from '../audit/audit.ts'
import { checkRanges } from '../config/config.ts'
import {
  type LogView,
  type NamedClusterset,
  StateError,
  clustersetRows,
  createClusterset,
  isLive,
  removeClusterset,
  unknownClusterset,
} from '../store/store.ts'
import { type AdminStates, type CommandInit, settingsOf } from './command-state.ts'

const OPENED_MS = 8000
const LOOK_MS = 100

export class ClustersetCommands {
  readonly #init: CommandInit
  readonly #states: AdminStates
  readonly #audited: AuditedCommandDeps

  constructor(init: CommandInit, states: AdminStates) {
    this.#init = init
    this.#states = states
    this.#audited = { log: init.state.log, clock: init.clock, who: init.who }
  }

  /** The broker's own first, then the others by name. */
  async list(): Promise<ClustersetSummary[]> {
    const { state } = this.#init
    await state.log.refresh()
    const { clusterset: name, globalRange, clustersetIpRange } = settingsOf(state)
    const members = liveMembers(state.log)
    const own = { name, state: 'own' as const, globalRange, clustersetIpRange, members }
    const others: ClustersetSummary[] = []
    for (const row of clustersetRows(state.log)) others.push(await this.#summary(row))
    return [own, ...others]
  }

  /**
   * Waits a few seconds until a broker has opened it. Throws RefusedError as createClusterset() does, and
   * BrokerConfigError for invalid ranges.
   */
  async create(init: CreateClustersetInit): Promise<CreatedClusterset> {
    const { state, clock } = this.#init
    const { log } = state
    const { name } = init
    await log.refresh()
    const known = log.get('clusterset', name) ?? settingsOf(state)
    const ranges = {
      globalRange: init.globalRange ?? known.globalRange,
      clustersetIpRange: init.clustersetIpRange ?? known.clustersetIpRange,
    }
    checkRanges(ranges)
    const details = { ...ranges }
    const created = await auditedCommand(
      this.#audited,
      { act: 'clusterset.create', subject: name, details },
      (tx) => createClusterset(tx, { name, ...ranges }, clock.now()),
      (done) => ({ details: { ...details, repeated: !done } }),
    )
    const row = log.get('clusterset', name)
    if (row === undefined) throw unknownClusterset(log, name)
    const summary = await this.#summary({ ...row, name })
    return { ...summary, repeated: !created, opened: await this.#opened(name) }
  }

  /**
   * Stops serving the clusterset. Its store is kept. `repeated`: it had been removed before. Throws RefusedError if there
   * is none of this name. Unless forced, also throws if it has members or their number is unknown.
   */
  async remove({ name, force }: { readonly name: string; readonly force: boolean }): Promise<{
    readonly repeated: boolean
  }> {
    const { log } = this.#init.state
    await log.refresh()
    const members = await this.#members(name)
    const details = { force }
    const removed = await auditedCommand(
      this.#audited,
      { act: 'clusterset.remove', subject: name, details },
      (tx) => {
        const row = tx.get('clusterset', name)
        if (row !== undefined && row.removedAtMs === undefined && !force) refuseMembers(name, members)
        return removeClusterset(tx, name, this.#init.clock.now())
      },
      (done) => ({ details: { ...details, repeated: !done } }),
    )
    return { repeated: !removed }
  }

  /** Whether a broker has opened this clusterset within a few seconds. */
  async #opened(name: string): Promise<boolean> {
    const { state, clock, signal } = this.#init
    // While this process holds the lock of a database, no broker can open it, nor start.
    const canOpen = state.etcd !== undefined || this.#states.served(undefined) !== undefined
    const until = clock.monotonic() + (canOpen ? OPENED_MS : 0)
    for (;;) {
      await state.log.refresh()
      if (state.log.get('clusterset', name)?.openedAtMs !== undefined) return true
      if (clock.monotonic() >= until) return false
      await clock.sleep(LOOK_MS, signal)
    }
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
    const row = this.#init.state.log.get('clusterset', name)
    // No cluster can have joined a clusterset that was never opened.
    if (row === undefined || row.openedAtMs === undefined) return 0
    try {
      return await this.#states.use(name, 'read', ({ log }) => Promise.resolve(liveMembers(log)))
    } catch (error) {
      if (error instanceof StateError) return messageOf(error)
      throw error
    }
  }
}

function liveMembers(log: LogView): number {
  return log.list('member').filter(({ value }) => isLive(value)).length
}

function refuseMembers(name: string, members: number | string): void {
  if (members === 0) return
  const what = typeof members === 'number' ? `it has ${members} members` : `it may have members (${members})`
  const text = `clusterset ${JSON.stringify(name)}: ${what}; evict them first, or use --force`
  throw new RefusedError('ClustersetInUse', 'clusterset', text)
}
