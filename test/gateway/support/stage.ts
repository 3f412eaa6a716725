/** The whole gateway against fakes, with the input that tests change and the state that they check. */
import { join } from 'node:path'
import type { Test } from 'tap'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { runLabelledGateway } from '../../../gateway/lease/labelled-gateway.ts'
import { WireguardCable } from '../../../gateway/cable/wireguard/wireguard-cable.ts'
import { type GatewayConfigInit, type GatewayDeps, gatewayConfig, runGateway } from '../../../gateway/main.ts'
import type { Cable } from '../../../gateway/cable/cable-driver.ts'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import { FakeRouteTable } from '../../../kernel/fake/fake-route-table.ts'
import type { FakeNode } from '../../../kernel/fake/fake-links.ts'
import { FakeSysctl } from '../../../kernel/fake/fake-sysctl.ts'
import { FakeWireguard } from '../../../kernel/fake/fake-wireguard.ts'
import { parseAddressPort } from '../../../model/addresses/address-port.ts'
import { type GatewayLane, LABEL_GATEWAY, gatewayLabel, gatewayProblem } from '../../../model/lanes/gateway-node.ts'
import type { Endpoint, Gateway, KubeObject, Node } from '../../../model/objects.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../../runtime/component.ts'
import { eventually } from '../../support/eventually.ts'
import { filesAtRest } from '../../support/files-in-flight.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { FakeLeases } from './fake-leases.ts'
import { FakeProbes } from '../../support/fake-probes.ts'
import { membership } from './netns-sites.ts'
import { cluster, endpoint, node } from './worlds.ts'

export const MILANO = cluster('milano', 1, '10.42.0.0/16', '244.0.0.0/16')
export const PARIS = cluster('paris', 2, '10.42.0.0/16', '244.1.0.0/16')
export const PARIS_GW = endpoint('paris', 'gw', 0, ['public 198.51.100.20:4500', 'private 10.0.0.2:4500'])
/** The address at which it is called, and the address at which it is seen behind NAT. */
export const [HOME, NAT] = [parseAddressPort('198.51.100.20:4500'), parseAddressPort('203.0.113.9:61000')]

/** The pause after each step takes longer than the step itself. */
const STEPS_AT_ONCE = 20

/** The links and addresses of the node before anything starts. */
export const STAGE_ROUTES: FakeNode = {
  links: [
    { name: 'eth0', mtu: 1500 },
    { name: 'cni0', kind: 'bridge' },
  ],
  addresses: [
    { device: 'eth0', address: '192.0.2.10/24' },
    { device: 'cni0', address: '10.42.0.1/24' },
  ],
  defaultDevice: 'eth0',
}

/** A gateway on one node whose kernel, clock, API and far ends are fakes. */
export class Stage {
  readonly clock = new FakeClock()
  readonly objects = new MemoryApi({ clock: this.clock })
  readonly routes: FakeRouteTable
  readonly nft = new FakeNft()
  readonly nft6 = new FakeNft({ family: 'ip6' })
  readonly wireguard: FakeWireguard
  readonly sysctl = new FakeSysctl({ 'net.ipv4.ip_forward': '0', 'net.ipv6.conf.all.forwarding': '0' })
  readonly probes = new FakeProbes()
  readonly leases = new FakeLeases(this.objects)
  readonly logger = new CapturingLogger()
  readonly status = new StatusBoard()
  readonly metrics = createMetrics('gateway')
  readonly stateDir: string
  readonly before: string
  /** Whether the kernel has next-hop objects; set before start(). */
  grouped = false
  /** Stands for the name servers. */
  resolveName: (name: string) => Promise<readonly string[]> = () => Promise.reject(new Error('no name servers'))
  #stopping = new AbortController()
  #running: Promise<void> = Promise.resolve()

  readonly #cable: Cable | undefined

  /** `cable` is a cable other than WireGuard, over those routes. */
  constructor(t: Test, init: { readonly routes?: FakeRouteTable; readonly cable?: Cable } = {}) {
    this.routes = init.routes ?? new FakeRouteTable(STAGE_ROUTES)
    this.wireguard = new FakeWireguard({ routes: this.routes, driver: 'userspace' })
    this.#cable = init.cable
    this.stateDir = join(temporaryFolder(t), 'gw')
    this.before = this.kernel()
    this.sysctl.provideDevice('sealane0')
    this.sysctl.provideDevice('sealane1')
    for (const object of [membership('milano', 'joined'), MILANO, node('gw', '192.0.2.10', '10.42.0.0/24')])
      this.objects.put(object)
    t.teardown(() => this.stop().catch(() => undefined))
  }

  start(init: Partial<GatewayConfigInit> = {}): void {
    this.#stopping = new AbortController()
    this.#running = runGateway(this.#deps(), this.#config(init), this.#stopping.signal)
  }

  /**
   * Starts the gateway as on a real cluster, where the label of the Node gives the lane. `askNode` stands for the API
   * while the process ends.
   */
  startLabelled(
    askNode: (signal: AbortSignal) => Promise<Node | undefined> = () => Promise.resolve(this.node()),
  ): void {
    this.#stopping = new AbortController()
    const init = {
      node: 'gw',
      askNode,
      leases: this.leases,
      activeGateways: 2,
      configOf: (lanes: readonly GatewayLane[]) => this.#config({ lanes }),
    }
    const node = this.node()
    const isUsable = node !== undefined && gatewayProblem(node) === undefined
    const first = node === undefined ? undefined : isUsable ? gatewayLabel(node) : 'unusable'
    this.#running = runLabelledGateway(this.#deps(), init, first, this.#stopping.signal)
  }

  /** Sets the Node with this label; undefined takes the label off. */
  label(lane: string | undefined, annotations: Record<string, string> = {}, address?: string): void {
    const before = address === undefined ? this.node() : node('gw', address, '10.42.0.0/24')
    const { metadata, ...rest } = before ?? node('gw', '192.0.2.10', '10.42.0.0/24')
    const labels = lane === undefined ? {} : { [LABEL_GATEWAY]: lane }
    this.put({ ...rest, metadata: { ...metadata, labels, annotations } })
  }

  node(): Node | undefined {
    return this.objects.get('Node', 'gw')
  }

  #config(init: Partial<GatewayConfigInit>) {
    return gatewayConfig({
      ...{ node: 'gw', version: '1', stateDir: this.stateDir, lanes: [{ lane: 0 }], failClosed: true },
      ...init,
    })
  }

  #deps(): GatewayDeps {
    const { clock, logger, status, routes, nft, nft6, wireguard, sysctl, stateDir } = this
    return {
      clock,
      logger,
      status,
      routes,
      ...(this.grouped ? { nextHops: routes.nextHops } : {}),
      nft,
      nft6,
      cable: this.#cable ?? new WireguardCable({ clock, routes, wireguard, sysctl }, { stateDir }),
      sysctl,
      metrics: this.metrics,
      api: this.objects,
      openProbeSocket: this.probes.openSocket,
      probeTcp: () => Promise.resolve(true),
      resolveName: (name) => this.resolveName(name),
    }
  }

  stop(): Promise<void> {
    this.#stopping.abort()
    return this.#running
  }

  get ended(): Promise<void> {
    return this.#running
  }

  put(...objects: KubeObject[]): void {
    for (const object of objects) this.objects.put(object)
  }

  /** Lets fake time pass until the check holds. Time does not move while a round reads a file. */
  async until(check: () => boolean, say: string, stepMs = 20): Promise<void> {
    const some = async (): Promise<boolean> => {
      for (let i = 0; i < STEPS_AT_ONCE; i += 1) {
        await this.#step(stepMs)
        if (check()) return true
      }
      return false
    }
    await eventually(some, { intervalMs: 1, deadlineMs: 30_000, say }).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${this.kernel()}\n${JSON.stringify(this.logger.lines.slice(-3))}`)
    })
  }

  /** Lets time pass in steps, so that work that starts in between can finish. */
  async pass(ms: number): Promise<void> {
    for (let i = 0; i < ms; i += 20) await this.clock.advance(20)
  }

  /** Lets time pass only as fast as the rounds, which read files, can follow. */
  async passSlowly(ms: number): Promise<void> {
    const endMs = this.clock.monotonic() + ms
    while (this.clock.monotonic() < endMs) await this.#step(50)
  }

  async #step(ms: number): Promise<void> {
    await filesAtRest()
    await this.clock.advance(ms)
  }

  kernel(): string {
    return [
      this.routes.toString(),
      this.wireguard.toString(),
      ...this.nft.tableNames(),
      ...this.nft6.tableNames().map((name) => `ip6 ${name}`),
    ].join('\n')
  }

  routed(): string[] {
    return this.routes
      .toString()
      .split('\n')
      .filter((line) => line.includes('table 7311'))
  }

  gateway(): Gateway['status'] {
    return this.objects.cache('Gateway').get('gw')?.status
  }

  connection(id: string) {
    return this.gateway()?.connections.find((connection) => connection.cluster === id)
  }

  ownEndpoint(): Endpoint | undefined {
    return this.objects.cache('Endpoint').get('milano.gw-lane0')
  }
}
