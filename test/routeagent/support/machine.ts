/**
 * A routeagent on a machine whose drivers are all fakes, with the input that tests change and the state that they
 * check.
 */
import type { Test } from 'tap'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import type { FakeConnections } from '../../../kernel/fake/fake-connections.ts'
import type { FakePacketLog } from '../../../kernel/fake/fake-packet-log.ts'
import type { FakeForwardPolicies } from '../../../kernel/fake/fake-forward-policies.ts'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import { FakeRouteTable } from '../../../kernel/fake/fake-route-table.ts'
import { FakeSysctl } from '../../../kernel/fake/fake-sysctl.ts'
import type { ChecksumOffload } from '../../../kernel/tuning/checksum-offload.ts'
import { NFT_TABLE_NODE, VXLAN_DEVICE } from '../../../model/kernel-ids.ts'
import type { KubeObject } from '../../../model/objects.ts'
import type { Clock } from '../../../reconcile/clock.ts'
import { runRouteAgent } from '../../../routeagent/main.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../../runtime/component.ts'
import { eventually } from '../../support/eventually.ts'
import { FakeProbes } from '../../support/fake-probes.ts'
import { JumpingClock } from '../../support/jumping-clock.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { loopRuns } from './loop-runs.ts'
import { cluster, endpoint, membership, node } from './site.ts'

export class Machine {
  readonly api = new MemoryApi()
  readonly nft = new FakeNft()
  readonly nft6 = new FakeNft({ family: 'ip6' })
  readonly routes = new FakeRouteTable({
    links: [{ name: 'eth0' }, { name: 'cni0', kind: 'bridge' }],
    addresses: [
      { device: 'eth0', address: '192.168.7.11/24' },
      { device: 'cni0', address: '10.42.1.1/24' },
    ],
    mainRoutes: [{ destination: '10.42.1.0/24', type: 'unicast', device: 'cni0' }],
    defaultDevice: 'eth0',
  })
  readonly sysctl = new FakeSysctl({
    'net/ipv4/ip_forward': '0',
    'net/ipv6/conf/all/forwarding': '0',
    'net/ipv4/fib_multipath_hash_policy': '0',
    'net/ipv6/fib_multipath_hash_policy': '0',
    'net/bridge/bridge-nf-call-iptables': '1',
    'net/bridge/bridge-nf-call-ip6tables': '1',
  })
  readonly logger = new CapturingLogger()
  readonly clock = new JumpingClock()
  /** Nodes that are probed over the overlay; only those that a test adds answer. */
  readonly probes = new FakeProbes()
  /** The open connections that are counted; set before start(). */
  connections: FakeConnections | undefined
  /** Logged packets; set before start(). */
  packetLog: FakePacketLog | undefined
  /** The network card; set before start(). */
  checksumOffload: ChecksumOffload | undefined
  /** Whether the kernel has next-hop objects; set before start(). */
  grouped = false
  /** The addresses of machines that answer no TCP probe. */
  readonly dead = new Set<string>()
  /** The addresses of machines that have answered a TCP probe. */
  readonly answered = new Set<string>()
  status = new StatusBoard()
  metrics = createMetrics('routeagent')
  /** Absent: the route agent has none. */
  forwardPolicies: FakeForwardPolicies | undefined
  failClosed = true
  readonly before: string
  readonly stateDir: string

  constructor(t: Test) {
    this.stateDir = temporaryFolder(t)
    // The kernel makes these settings with the device; the two fakes are not connected.
    this.sysctl.provideDevice(VXLAN_DEVICE)
    this.sysctl.provide(`net/ipv6/conf/${VXLAN_DEVICE}/disable_ipv6`, '1')
    this.before = this.kernel()
  }

  kernel(): string {
    const forwarding = this.sysctl.toString().match(/.*(ip_forward|all\/forwarding).*/g) ?? []
    return [this.routes.toString(), this.nft.toString(), this.nft6.toString(), ...forwarding].join('\n')
  }

  start(t: Test, api = this.api, overlayPort?: number): { stop(): Promise<void>; ended: Promise<void> } {
    const stopping = new AbortController()
    this.status = new StatusBoard()
    const { nft, nft6, routes, sysctl, logger, status } = this
    const clock: Clock = this.clock
    const metrics = (this.metrics = createMetrics('routeagent'))
    const probeTcp = (address: string): Promise<boolean> => {
      const answers = !this.dead.has(address)
      if (answers) this.answered.add(address)
      return Promise.resolve(answers)
    }
    const counted = this.connections === undefined ? {} : { connections: this.connections, flows: this.connections }
    const openProbeSocket = this.probes.openSocket
    const devicePackets = (): Promise<undefined> => Promise.resolve(undefined)
    const probing = { openProbeSocket, devicePackets }
    const { checksumOffload, packetLog, forwardPolicies } = this
    const closing = forwardPolicies === undefined ? {} : { forwardPolicies }
    const logged = packetLog === undefined ? {} : { packetLog }
    const offload = checksumOffload === undefined ? {} : { checksumOffload }
    const nextHops = this.grouped ? { nextHops: routes.nextHops } : {}
    const deps = {
      api,
      nft,
      nft6,
      routes,
      sysctl,
      logger,
      status,
      clock,
      metrics,
      probeTcp,
      ...counted,
      ...probing,
      ...nextHops,
      ...offload,
      ...logged,
      ...closing,
    }
    const port = overlayPort === undefined ? {} : { overlayPort }
    const config = { node: 'worker', version: '1.2.3', stateDir: this.stateDir, failClosed: this.failClosed, ...port }
    const ended = runRouteAgent(deps, config, stopping.signal)
    const stop = (): Promise<void> => {
      stopping.abort(new Error('stopped by the test'))
      return ended
    }
    t.teardown(stop)
    return { stop, ended }
  }

  ready(): Promise<unknown> {
    return eventually(() => this.status.notReady().length === 0, { say: `ready: ${this.status.notReady().join('; ')}` })
  }

  join(): void {
    this.api.put(membership())
    this.api.put(node('gw', '192.168.7.1', '10.42.0.0/24'))
    this.api.put(node('worker', '192.168.7.11', '10.42.1.0/24'))
    this.api.put(cluster('milano', 1, '244.0.0.0/16'))
    this.api.put(cluster('paris', 2, '244.1.0.0/16'))
    this.api.put(endpoint('milano', 'gw'))
  }

  /**
   * Stores the object and waits for a run of the loop, twice, because the first run may have begun before the object
   * was stored. An annotation makes the second store a change.
   */
  async putThrough(loop: string, object: KubeObject): Promise<void> {
    for (const turn of ['1', '2']) {
      const runs = await loopRuns(this.metrics, loop)
      this.api.put({ ...object, metadata: { ...object.metadata, annotations: { turn } } })
      await eventually(async () => (await loopRuns(this.metrics, loop)) > runs, { say: `run ${turn} of ${loop}` })
    }
  }

  async backends(vip: string): Promise<string[]> {
    const elements = await this.nft.elements(NFT_TABLE_NODE, 'slots').catch(() => [])
    const ours = elements.filter((e) => e.key.startsWith(`${vip} `)).map((e) => e.value ?? '')
    return [...new Set(ours)]
  }

  /** Waits until the address leads to these backends. */
  serves(vip: string, ...want: string[]): Promise<unknown> {
    return eventually(async () => (await this.backends(vip)).join(', ') === want.join(', '), {
      say: `${vip} → ${want.join(', ')}`,
    })
  }
}
