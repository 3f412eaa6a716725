/** Three nodes that share one lane number, on a fake clock and a fake API. */
import type { Test } from 'tap'
import { wireguardRules } from '../../../gateway/cable/wireguard/plan-device.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { LaneLease } from '../../../gateway/lease/lane-lease.ts'
import { FailedLane } from '../../../gateway/lease/failed-lane.ts'
import type { ConnectionState, Node } from '../../../model/objects.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { connectionsTo, gatewayObject } from '../../support/objects/node-objects.ts'
import { FakeLeases } from '../support/fake-leases.ts'
import { membership } from '../support/netns-sites.ts'
import { endpoint, node } from '../support/worlds.ts'

export const NODES = ['a', 'b', 'c'] as const
export type Name = (typeof NODES)[number]
export const ADDRESSES = { a: '192.0.2.10', b: '192.0.2.11', c: '192.0.2.12' } as const

export class Cluster {
  readonly clock = new FakeClock()
  readonly objects = new MemoryApi({ clock: this.clock })
  readonly leases = new FakeLeases(this.objects)
  readonly logger = new CapturingLogger()
  readonly tenures = new Map<Name, LaneLease>()
  /** The addresses of machines that answer no TCP probe. */
  readonly dead = new Set<string>()
  readonly knocks: string[] = []
  readonly #stops = new Map<Name, AbortController>()

  constructor(t: Test) {
    this.objects.put(membership('milano', 'joined'))
    for (const name of NODES) this.node(name, {})
    t.teardown(() => NODES.forEach((name) => this.kill(name)))
  }

  node(name: Name, spec: NonNullable<Node['spec']>): void {
    this.label(name, '0', spec)
  }

  label(name: Name, lane: string | undefined, spec: NonNullable<Node['spec']> = {}): void {
    const { metadata, ...rest } = node(name, ADDRESSES[name])
    const labels = lane === undefined ? {} : { 'sealane.io/gateway': lane }
    this.objects.put({ ...rest, metadata: { ...metadata, labels }, spec })
  }

  start(...names: Name[]): void {
    for (const name of names) {
      const stop = new AbortController()
      const { clock, logger, objects, leases } = this
      const probeTcp = (address: string): Promise<boolean> => {
        this.knocks.push(address)
        return Promise.resolve(!this.dead.has(address))
      }
      const cable = { rules: wireguardRules }
      const init = { node: name, lane: 0, numbers: 1, failedLane: new FailedLane(clock) }
      const tenure = new LaneLease({ clock, logger, api: objects, leases, probeTcp, cable }, init)
      this.tenures.set(name, tenure)
      this.#stops.set(name, stop)
      void tenure.run(stop.signal)
    }
  }

  /** The process is killed; its machine stays up. */
  kill(name: Name): void {
    this.#stops.get(name)?.abort()
    this.tenures.delete(name)
  }

  /** The machine disappears without giving its lease up. */
  lose(name: Name): void {
    this.kill(name)
    this.dead.add(ADDRESSES[name])
  }

  /** Publishes what the node's gateway would: its Endpoint, and its links to the other clusters. */
  reports(
    name: Name,
    states: Readonly<Record<string, ConnectionState>> | undefined,
    driver = 'wireguard-kernel',
  ): void {
    const own = endpoint('milano', name, 0, [])
    this.objects.drop('Endpoint', own.metadata.name)
    this.objects.drop('Gateway', name)
    if (states === undefined) return
    const lanes = [{ lane: 0, device: 'sealane0', mtu: 1420, driver }]
    const heartbeatTime = new Date(this.clock.now()).toISOString()
    this.objects.put(own)
    this.objects.put(gatewayObject(name, { lanes, connections: connectionsTo(states), heartbeatTime }))
  }

  async pass(ms: number): Promise<void> {
    for (let i = 0; i < ms; i += 100) await this.clock.advance(100)
  }

  /** The events since the last call of this function. */
  reported(): string[] {
    const events = this.objects.events.splice(0)
    return events.map(({ type, reason, regarding, note }) => `${type} ${reason} ${regarding.name}: ${note}`)
  }

  /** The state of each node, as `a serving, b standing by, c standing by`. */
  get states(): string {
    return [...this.tenures].map(([name, { state }]) => `${name} ${state.is}`).join(', ')
  }
}

export const taken = (node: Name, why: string): string =>
  `Normal LaneTaken ${node}: this node is now the gateway of lane 0; ${why}`

/** A cluster whose first node by name serves, and reports its links. */
export async function served(t: Test): Promise<Cluster> {
  const cluster = new Cluster(t)
  cluster.start('b', 'c', 'a')
  await cluster.pass(5000)
  t.equal(cluster.states, 'b standing by, c standing by, a serving', 'the first by name, whoever started first')
  cluster.reports('a', { paris: 'up', tokyo: 'up' })
  t.strictSame(cluster.reported(), [taken('a', 'the lane had no gateway')])
  return cluster
}
