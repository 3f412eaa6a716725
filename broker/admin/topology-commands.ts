/** The commands of operators on the topology of a clusterset: which members link with which. */
import { createHash } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { readTopology } from '../../model/schemas/schemas.ts'
import { MAX_TOPOLOGY_TEXT, type Topology, topologyText } from '../../model/model.ts'
import { transitClusters } from '../../model/lanes/lanes.ts'
import type { PlanTopology, SetTopology, TopologyFacts, TopologyPlan, TopologySet } from '../../protocol/admin/admin.ts'
import { CodecError, bodyFromBytes, bodyToBytes, canonicalJson } from '../../protocol/codec/codec.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { auditedCommand } from '../audit/audit.ts'
import {
  type SetTopologyInit,
  checkFollowed,
  releaseTopology,
  setTopology,
  topologyInForce,
  topologyOwner,
  topologyRecord,
} from '../records/records.ts'
import { type CommandInit, settingsOf } from './command-state.ts'
import { planTopology } from './preview-topology.ts'

/** Bytes of the record. Every member gets it, in one message with others. */
const MAX_BYTES = 192 * 1024

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
    const ignoredBy = topology.mode === 'full' ? [] : await this.#careless(topology)
    const object = topologyOwner(state.log)
    return {
      ...{ topology, number },
      ...(known === undefined ? {} : { setAtMs: known.setAtMs }),
      ...(object === undefined ? {} : { object }),
      ...(ignoredBy.length === 0 ? {} : { ignoredBy }),
    }
  }

  /** Throws RefusedError (InvalidValue), which names the field. */
  async plan({ topology, linksOnly }: PlanTopology): Promise<TopologyPlan> {
    const { state, signal } = this.#init
    const wanted = checked(topology)
    await state.log.refresh()
    settingsOf(state)
    return planTopology(state.log, wanted, { linksOnly, signal })
  }

  /**
   * Throws RefusedError (InvalidValue), which names the field, or (TopologyNotSupported) while a replica does not keep
   * to it, and as setTopology() does.
   */
  async set({ topology, basedOn }: SetTopology): Promise<TopologySet> {
    return this.#change(checked(topology), { basedOn })
  }

  /**
   * Sets the topology that an object in the broker's cluster states, and keeps commands from changing it. Throws as
   * set() does, and as setTopology() does for an object. What counts already is not audited, nor what cannot count, since
   * this is called again and again.
   */
  async follow(topology: unknown, object: string): Promise<TopologySet> {
    const { state } = this.#init
    const wanted = checked(topology)
    await state.log.refresh()
    const { topology: before, number } = topologyInForce(state.log)
    if (topologyOwner(state.log) === object && isDeepStrictEqual(before, wanted)) return { changed: false, number }
    checkFollowed(state.log, object)
    const careless = wanted.mode === 'full' ? [] : await this.#careless(wanted)
    if (careless.length > 0) throw notSupported(wanted, careless)
    return this.#change(wanted, { object })
  }

  /** The object is gone: the topology stays, and commands set it again. Returns which object it was. */
  async release(): Promise<string | undefined> {
    const { state, clock, who } = this.#init
    const { log } = state
    await log.refresh()
    const object = topologyOwner(log)
    if (object === undefined) return undefined
    const details = { object, number: topologyInForce(log).number }
    return auditedCommand({ log, clock, who }, { act: 'topology.release', details }, releaseTopology)
  }

  async #change(wanted: Topology, { basedOn, object }: Omit<SetTopologyInit, 'topology'>): Promise<TopologySet> {
    const { state, clock, who, signal } = this.#init
    const careless = wanted.mode === 'full' ? [] : await this.#careless(wanted)
    const { mode, groups = [], hubs = [], pairs = [] } = wanted
    const { links, transit } = await planTopology(state.log, wanted, { linksOnly: true, signal })
    const digest = createHash('sha256').update(canonicalJson(wanted)).digest('hex')
    const sizes = { groups: groups.length, hubs: hubs.length, pairs: pairs.length }
    const changes = { linksLost: links.lost, linksGained: links.gained }
    const from = object === undefined ? {} : { object }
    const details = { mode, ...sizes, ...changes, ...(transit && { linksMoved: transit.moved }), digest, ...from }
    return auditedCommand(
      { log: state.log, clock, who },
      { act: 'topology.set', details },
      (tx) => {
        if (careless.length > 0) throw notSupported(wanted, careless)
        return setTopology(tx, { topology: wanted, basedOn, object }, clock.now())
      },
      ({ changed, number }) => ({ details: { ...details, number, repeated: !changed } }),
    )
  }

  /** Replicas that would not keep to it. One that starts later is in the log, in the status and in show(). */
  async #careless(topology: Topology): Promise<readonly string[]> {
    const { state, signal } = this.#init
    if (state.etcd === undefined) return []
    const { replicasWithout } = await import('./etcd-status.ts')
    return replicasWithout(hasTransit(topology) ? 'keepsToTransit' : 'keepsToTopology', state.etcd, signal)
  }
}

function notSupported(topology: Topology, replicas: readonly string[]): RefusedError {
  const [field, expected] = hasTransit(topology) ? ['via', 'none'] : ['mode', 'full']
  const text = `${field}: expected ${expected} while brokers of an earlier release serve this store`
  return new RefusedError('TopologyNotSupported', field, `${text}: ${replicas.join(', ')}`)
}

function hasTransit(topology: Topology): boolean {
  return transitClusters(topology).length > 0
}

function checked(value: unknown): Topology {
  const read = readTopology(value)
  if (!('topology' in read)) throw new RefusedError('InvalidValue', read.field, read.wrong)
  checkSendable(read.topology)
  return read.topology
}

/** Members take what a record may contain, and would keep the former topology instead of one that they cannot read. */
function checkSendable(topology: Topology): void {
  const bytes = bodyToBytes({ kind: 'Topology', number: Number.MAX_SAFE_INTEGER, topology })
  if (bytes.length > MAX_BYTES) {
    const text = `topology: ${bytes.length} bytes: expected at most ${MAX_BYTES}`
    throw new RefusedError('InvalidValue', 'topology', text)
  }
  const { length } = topologyText(topology)
  if (length > MAX_TOPOLOGY_TEXT) {
    const text = `topology: ${length} characters as JSON: expected at most ${MAX_TOPOLOGY_TEXT}`
    throw new RefusedError('InvalidValue', 'topology', text)
  }
  try {
    bodyFromBytes(bytes)
  } catch (error) {
    if (!(error instanceof CodecError)) throw error
    const field = error.field.replace(/^body\.?/, '')
    throw new RefusedError('InvalidValue', field, `${field}: ${error.problem}`)
  }
}
