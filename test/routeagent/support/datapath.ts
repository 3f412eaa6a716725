/**
 * A worker and its gateway node for tests with packets:
 *
 *   client 10.42.1.5 ── cni0 10.42.1.1 [ worker: this namespace ] 192.168.7.11 ══ sealane-vx ══ 192.168.7.1 [ gateway ]
 *
 * The worker has the real routeagent on the real drivers, and a masquerade rule as a CNI sets it; the gateway node is
 * built by hand and stands in for the far cluster.
 */
import type { ChildProcess } from 'node:child_process'
import { join } from 'node:path'
import type { Test } from 'tap'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { NftSession } from '../../../kernel/nft/nft-session.ts'
import { SysfsBridgePorts } from '../../../kernel/tuning/bridge-ports.ts'
import { ProcSysctl } from '../../../kernel/tuning/proc-sysctl.ts'
import { RtnetlinkNextHops } from '../../../kernel/route/rtnetlink-next-hops.ts'
import { Conntrack } from '../../../kernel/nfnetlink/ctnetlink.ts'
import { NetlinkPacketLog } from '../../../kernel/nfnetlink/nfnetlink.ts'
import { Rtnetlink } from '../../../kernel/route/rtnetlink.ts'
import { runCommand } from '../../../kernel/run-command.ts'
import type { KubeObject } from '../../../model/objects.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { runRouteAgent } from '../../../routeagent/main.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import type { Metrics } from '../../../runtime/metrics/instruments.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../../runtime/component.ts'
import { eventually } from '../../support/eventually.ts'
import type { Netns } from '../../support/netns.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { loopRuns } from './loop-runs.ts'

export const TALKER = join(import.meta.dirname, 'talker.ts')

export async function here(command: string, ...args: string[]): Promise<string> {
  const result = await runCommand(command, args)
  if (result.code !== 0) throw new Error(`${command} ${args.join(' ')}: ${result.stderr}`)
  return result.stdout
}

export const ip = (text: string): Promise<string> => here('ip', ...text.split(' '))

interface BridgeInit {
  /** As CNIs set it, so that a pod may be balanced to itself. Sites without a CNI leave it off. */
  readonly hairpin?: 'on' | 'off'
}

/** A bridge with a port for each pod, which is called `pod0`, `pod1` … here and eth0 in the pod. */
export async function buildBridge(pods: readonly Netns[], { hairpin = 'on' }: BridgeInit = {}): Promise<void> {
  // The bridge has a fixed address, as CNIs set it; otherwise its address changes with the ports.
  await ip('link add cni0 address 02:00:00:00:00:01 type bridge')
  await ip('address add 10.42.1.1/24 dev cni0')
  await ip('link set cni0 up')
  for (const [i, pod] of pods.entries()) {
    await ip(`link add pod${i} type veth peer name eth0 netns ${pod.name}`)
    await ip(`link set pod${i} master cni0 up`)
    await here('bridge', 'link', 'set', 'dev', `pod${i}`, 'hairpin', hairpin)
    await pod.exec('ip', ['address', 'add', `10.42.1.${5 + i}/24`, 'dev', 'eth0'])
    await pod.exec('ip', ['link', 'set', 'eth0', 'up'])
    await pod.exec('ip', ['route', 'add', 'default', 'via', '10.42.1.1'])
  }
  await here('nft', 'add table ip cni')
  await here('nft', 'add chain ip cni post { type nat hook postrouting priority 100; }')
  await here('nft', 'add rule ip cni post ip saddr 10.42.0.0/16 ip daddr != 10.42.0.0/16 masquerade')
}

/** Builds by hand what the routeagent of the gateway node would make. */
export async function buildGatewayNode(far: Netns): Promise<void> {
  await ip(`link add eth0 type veth peer name eth0 netns ${far.name}`)
  await ip('address add 192.168.7.11/24 dev eth0')
  await ip('link set eth0 up')
  const lines = [
    'address add 192.168.7.1/24 dev eth0',
    'link set eth0 up',
    'link add sealane-vx address 0a:5e:c0:a8:07:01 mtu 1450 type vxlan id 7300 local 192.168.7.1 dstport 4810 nolearning',
    'link set sealane-vx up',
    'neighbour replace 192.168.7.11 lladdr 0a:5e:c0:a8:07:0b dev sealane-vx nud permanent',
    'route add 10.42.1.0/24 via 192.168.7.11 dev sealane-vx onlink',
    'address add 244.1.0.5/32 dev lo',
    'address add 244.1.0.6/32 dev lo',
  ]
  for (const line of lines) await far.exec('ip', line.split(' '))
  await far.exec('bridge', 'fdb replace 0a:5e:c0:a8:07:0b dev sealane-vx dst 192.168.7.11 self permanent'.split(' '))
}

export interface Site {
  readonly api: MemoryApi
  readonly status: StatusBoard
  readonly ended: Promise<void>
  /** Ends the process; the kernel keeps what it has. */
  stop(): Promise<void>
  readonly clock: LateClock
  readonly logger: CapturingLogger
  readonly metrics: Metrics
  /** How many runs the loop has completed. */
  runs(loop: string): Promise<number>
  /**
   * The elements of the maps that tests look at, in the table of this family (the default is ip). A slot is `slot-0:
   * 245.0.0.7 . tcp . 80 244.1.0.5`.
   */
  elements(family?: 'ip' | 'ip6'): Promise<string[]>
}

class LateClock extends SystemClock {
  lateMs = 0
  override monotonic(): number {
    return super.monotonic() + this.lateMs
  }
}

/** The devices of this network namespace: /sys shows those of the process that mounted it. */
export async function mountDevices(t: Test): Promise<string> {
  const folder = temporaryFolder(t)
  await here('mount', '-t', 'sysfs', 'sysfs', folder)
  t.teardown(() => here('umount', folder))
  return join(folder, 'class', 'net')
}

export interface RouteAgentInit {
  readonly overlayPort?: number
  /** Bridge ports are set as on a site without Kubernetes. They are found below this folder. */
  readonly devices?: string
  readonly countsCalls?: true
}

/** Starts the routeagent of the node `worker`, in a cluster that has these objects. */
export function startRouteAgent(t: Test, objects: readonly KubeObject[], init: RouteAgentInit = {}): Site {
  const { overlayPort, devices, countsCalls } = init
  const stateDir = temporaryFolder(t)
  const api = new MemoryApi()
  for (const object of objects) api.put(object)
  const nft = new NftSession()
  const nft6 = new NftSession({ family: 'ip6' })
  const routes = new Rtnetlink()
  const nextHops = new RtnetlinkNextHops()
  const status = new StatusBoard()
  const clock = new LateClock()
  const logger = new CapturingLogger()
  const stopping = new AbortController()
  const metrics = createMetrics('routeagent')
  const flows = new Conntrack({ clock })
  const packetLog = new NetlinkPacketLog({ clock })
  const bridgePorts = new SysfsBridgePorts(devices)
  const kernel = { nft, nft6, routes, nextHops, sysctl: new ProcSysctl(), flows, lookup: flows, packetLog, bridgePorts }
  const counting = countsCalls === undefined ? {} : { countsCalls }
  const deps = { api, ...kernel, ...counting, clock, logger, metrics, status }
  const config = {
    node: 'worker',
    stateDir,
    failClosed: true,
    setsHairpin: devices !== undefined,
    ...(overlayPort === undefined ? {} : { overlayPort }),
  }
  const ended = runRouteAgent(deps, config, stopping.signal).finally(() => {
    nft.close()
    nft6.close()
    nextHops.close()
    routes.close()
  })
  t.teardown(async () => {
    stopping.abort()
    await ended
    if (!t.passing()) for (const line of logger.lines) t.comment(JSON.stringify(line))
  })
  const runs = (loop: string): Promise<number> => loopRuns(metrics, loop)
  const elements = (family = 'ip'): Promise<string[]> => elementsOf(family === 'ip' ? nft : nft6)
  const stop = (): Promise<void> => {
    stopping.abort()
    return ended
  }
  return { api, status, ended, stop, clock, logger, metrics, runs, elements }
}

async function elementsOf(nft: NftSession): Promise<string[]> {
  const found: string[] = []
  for (const map of ['no-backends', 'none-here', 'hairpin', 'members', 'ended']) {
    const elements = await nft.elements('sealane_node', map).catch(() => [])
    found.push(...elements.map((e) => `${map}: ${e.key} ${e.value ?? ''}`))
  }
  const slots = await nft.elements('sealane_node', 'slots').catch(() => [])
  return [...found, ...slots.map((e) => e.key.replace(/^(.*) \. (\d+)$/, `slot-$2: $1 ${e.value ?? ''} `))]
}

/** Waits until the elements match, and the routes are applied. */
export async function settled(site: Site, want: RegExp, family: 'ip' | 'ip6' = 'ip'): Promise<void> {
  await eventually(async () => want.test((await site.elements(family)).join(' ')), { say: String(want) })
  // The table and the routes are the work of two loops.
  await eventually(async () => (await site.runs('routes')) > 0, { say: 'routes are applied' })
}

/** Waits until calls to TCP port 80 of this clusterset IP, in its own family, go to these backends and no others. */
export async function balancedTo(site: Site, vip: string, want: readonly string[]): Promise<void> {
  const isOurs = new RegExp(`^slot-\\d+: ${vip} . tcp . 80 (\\S+)`)
  const sorted = [...want].sort().join()
  await eventually(
    async () => {
      const elements = await site.elements(vip.includes(':') ? 'ip6' : 'ip')
      const found = elements.map((element) => isOurs.exec(element)?.[1]).filter((address) => address !== undefined)
      return [...new Set(found)].sort().join() === sorted
    },
    { say: `${vip} balanced to ${sorted}` },
  )
}

/** Everything in this namespace that a test may leave behind. */
export async function kernelDump(): Promise<string> {
  const parts = await Promise.all([
    here('nft', 'list', 'ruleset'),
    ip('-o link'),
    ip('address'),
    ip('rule'),
    ip('-6 rule'),
    ip('route show table all'),
    ip('-6 route show table all'),
    here('sysctl', 'net.ipv4.ip_forward', 'net.ipv6.conf.all.forwarding'),
  ])
  // The state of a device is left out.
  return parts.join('\n').replaceAll(/ (state [A-Z]+|valid_lft \S+|preferred_lft \S+)/g, '')
}

interface CallInit {
  readonly address: string
  readonly port: number
  readonly count: number
  /** How long to wait for each answer. Default: 3 s. */
  readonly waitMs?: number
}

/** The answers to this many calls, as `own address, caller's address`, or the error of each. */
export async function call(ns: Netns | undefined, kind: string, to: CallInit): Promise<string[]> {
  const args = [TALKER, 'call', kind, to.address, String(to.port), String(to.count), String(to.waitMs ?? 3000)]
  const text = ns === undefined ? await here(process.execPath, ...args) : await ns.exec(process.execPath, args)
  return JSON.parse(text) as string[]
}

/** Waits until the program serves. */
export function serving(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => child.stdout?.once('data', () => resolve()))
}
