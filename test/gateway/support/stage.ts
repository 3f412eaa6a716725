/** The whole gateway against fakes: what tests put in, and what they look at. */
import { join } from 'node:path'
import type { Test } from 'tap'
import { MemoryCluster } from '../../../cluster/memory/memory-cluster.ts'
import { type GatewayConfigInit, gatewayConfig, runGateway } from '../../../gateway/main.ts'
import { FakeNft } from '../../../kernel/fake-nft.ts'
import { FakeRouteTable } from '../../../kernel/fake-route-table.ts'
import { FakeSysctl } from '../../../kernel/fake-sysctl.ts'
import { FakeWireguard } from '../../../kernel/fake-wireguard.ts'
import type { Endpoint, Gateway, KubeObject } from '../../../model/objects.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/capturing-logger.ts'
import { createMetrics } from '../../../runtime/prometheus-metrics.ts'
import { StatusBoard } from '../../../runtime/status-board.ts'
import { eventually } from '../../support/eventually.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { FakeProbes } from './fake-probes.ts'
import { membership } from './netns-sites.ts'
import { cluster, endpoint, node } from './worlds.ts'

export const MILANO = cluster('milano', 1, '10.42.0.0/16', '244.0.0.0/16')
export const PARIS = cluster('paris', 2, '10.42.0.0/16', '244.1.0.0/16')
export const PARIS_GW = endpoint('paris', 'gw', 0, ['public 198.51.100.20:4500', 'private 10.0.0.2:4500'])

/** A gateway on one node whose kernel, clock, API and far ends are fakes. */
export class Stage {
  readonly clock = new FakeClock()
  readonly objects = new MemoryCluster({ clock: this.clock })
  readonly routes = new FakeRouteTable({
    links: [
      { name: 'eth0', mtu: 1500 },
      { name: 'cni0', kind: 'bridge' },
    ],
    addresses: [
      { device: 'eth0', address: '192.0.2.10/24' },
      { device: 'cni0', address: '10.42.0.1/24' },
    ],
    defaultDevice: 'eth0',
  })
  readonly nft = new FakeNft()
  readonly wireguard = new FakeWireguard({ routes: this.routes, driver: 'userspace' })
  readonly sysctl = new FakeSysctl()
  readonly probes = new FakeProbes()
  readonly logger = new CapturingLogger()
  readonly status = new StatusBoard()
  readonly stateDir: string
  readonly before: string
  #stopping = new AbortController()
  #running: Promise<void> = Promise.resolve()

  constructor(t: Test) {
    this.stateDir = join(temporaryFolder(t), 'gw')
    this.before = this.kernel()
    this.sysctl.provideDevice('sealane0')
    for (const object of [membership('milano', 'joined'), MILANO, node('gw', '192.0.2.10', '10.42.0.0/24')])
      this.objects.put(object)
    t.teardown(() => this.stop().catch(() => undefined))
  }

  start(init: Partial<GatewayConfigInit> = {}): void {
    const { clock, logger, status, routes, nft, wireguard, sysctl } = this
    const deps = {
      clock,
      logger,
      status,
      routes,
      nft,
      wireguard,
      sysctl,
      metrics: createMetrics('gateway'),
      cluster: this.objects,
      openProbeSocket: this.probes.openSocket,
    }
    const config = gatewayConfig({ node: 'gw', version: '1', stateDir: this.stateDir, lanes: [{ lane: 0 }], ...init })
    this.#stopping = new AbortController()
    this.#running = runGateway(deps, config, this.#stopping.signal)
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

  /** Lets fake time pass until the check holds. */
  async until(check: () => boolean, say: string, stepMs = 20): Promise<void> {
    await eventually(
      async () => {
        await this.clock.advance(stepMs)
        return check()
      },
      {
        intervalMs: 1,
        deadlineMs: 10_000,
        say: `${say}\n${this.kernel()}\n${JSON.stringify(this.logger.lines.slice(-3))}`,
      },
    )
  }

  /** Lets time pass in steps, so that what is started in between can finish. */
  async pass(ms: number): Promise<void> {
    for (let i = 0; i < ms; i += 20) await this.clock.advance(20)
  }

  /** Lets time pass no faster than the rounds, which read files, can follow. */
  async passSlowly(ms: number): Promise<void> {
    const endMs = this.clock.monotonic() + ms
    await this.until(() => this.clock.monotonic() >= endMs, 'time passes', 50)
  }

  kernel(): string {
    return [this.routes.toString(), this.wireguard.toString(), this.nft.tableNames().join()].join('\n')
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
