/** The commands of operators on the topology of a clusterset: which members link with which. */
import { readTopology } from '../../model/schemas/schemas.ts'
import type { Topology } from '../../model/model.ts'
import type { SetTopology, TopologyFacts, TopologyPlan, TopologySet } from '../../protocol/admin/admin.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { auditedCommand } from '../audit/audit.ts'
import { setTopology, topologyInForce, topologyRecord } from '../records/records.ts'
import { type CommandInit, settingsOf } from './command-state.ts'
import { planTopology } from './plan-topology.ts'

export class TopologyCommands {
  readonly #init: CommandInit

  constructor(init: CommandInit) {
    this.#init = init
  }

  async show(): Promise<TopologyFacts> {
    const { state } = this.#init
    await state.log.refresh()
    settingsOf(state)
    const known = topologyRecord(state.log)
    const { topology, number } = topologyInForce(state.log)
    const ignoredBy = topology.mode === 'full' ? [] : await this.#careless()
    return {
      ...{ topology, number },
      ...(known === undefined ? {} : { setAtMs: known.setAtMs }),
      ...(ignoredBy.length === 0 ? {} : { ignoredBy }),
    }
  }

  /** Throws RefusedError (InvalidValue), which names the field. */
  async plan({ topology }: { readonly topology: unknown }): Promise<TopologyPlan> {
    const { state } = this.#init
    const wanted = checked(topology)
    await state.log.refresh()
    settingsOf(state)
    return planTopology(state.log, wanted)
  }

  /**
   * Throws RefusedError (InvalidValue), which names the field, or (TopologyNotSupported) while a replica does not keep
   * to it, and as setTopology() does.
   */
  async set({ topology, basedOn }: SetTopology): Promise<TopologySet> {
    const { state, clock, who } = this.#init
    const wanted = checked(topology)
    const careless = wanted.mode === 'full' ? [] : await this.#careless()
    const { mode, groups = [], hubs = [], pairs = [] } = wanted
    const details = { mode, groups: groups.length, hubs: hubs.length, pairs: pairs.length }
    return auditedCommand(
      { log: state.log, clock, who },
      { act: 'topology.set', details },
      (tx) => {
        if (careless.length > 0) throw notSupported(careless)
        return setTopology(tx, { topology: wanted, basedOn }, clock.now())
      },
      ({ changed, number }) => ({ details: { ...details, number, repeated: !changed } }),
    )
  }

  /** Replicas that would not keep to it. One that starts later is in the log, in the status and in show(). */
  async #careless(): Promise<readonly string[]> {
    const { state, signal } = this.#init
    if (state.etcd === undefined) return []
    const { withoutTopology } = await import('./etcd-status.ts')
    return withoutTopology(state.etcd, signal)
  }
}

function notSupported(replicas: readonly string[]): RefusedError {
  const text = `mode: expected full while brokers of an earlier release serve this store: ${replicas.join(', ')}`
  return new RefusedError('TopologyNotSupported', 'mode', text)
}

function checked(value: unknown): Topology {
  const read = readTopology(value)
  if ('topology' in read) return read.topology
  throw new RefusedError('InvalidValue', read.field, read.wrong)
}
