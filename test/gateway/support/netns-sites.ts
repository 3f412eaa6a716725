/**
 * Two sites joined by an "internet", each with a gateway, a pod on the gateway's node and a pod of another node:
 *
 *   pod ── br-pods ─┐                                                     ┌─ br-pods ── pod
 *                   gateway ── uplink ── internet (router) ── uplink ── gateway
 *   far ─ sealane-vx┘                                                     └sealane-vx ─ far
 *
 * A cluster with several gateways is several such sites, whose pods have the same addresses, so a pod answers behind
 * each of the gateways. Two clusters may have the same pod CIDR. With `pods6` they are dual-stack, but the internet
 * between them is IPv4. `sealane-vx` is a plain veth that stands for the overlay between nodes.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Cluster, Gateway, KubeObject, Kind } from '../../../model/objects.ts'
import type { Exposure } from '../../../model/access/access.ts'
import type { OpenPort } from '../../../model/addresses/address-port.ts'
import { eventually } from '../../support/eventually.ts'
import { type Netns, withNetns } from '../../support/netns.ts'
import { compiledProgram } from '../../support/compiled-program.ts'
import { membershipObject } from '../../support/objects/cluster-objects.ts'
import { withSockets } from '../../support/wireguard-sockets.ts'
import { node } from './worlds.ts'

export interface SiteInit {
  readonly cluster: Cluster
  /** The first two numbers of its pod addresses: '10.42'. */
  readonly pods: string
  /** The same for IPv6, if the site has it: 'fd42:1:0'. */
  readonly pods6?: string
  /** The site's address on the internet; `router` is the router's address there. */
  readonly address: string
  readonly router: string
  readonly lane: { readonly lane: number; readonly publicAddress?: string }
  readonly observedAddress?: string
  readonly openPorts?: readonly OpenPort[]
  /** GatewayConfig.sleepAfterMs */
  readonly sleepAfterMs?: number
  /** Membership.spec.exposure. Absent: as of a member that never stated it. */
  readonly exposure?: Exposure
}

export interface Site {
  readonly init: SiteInit
  readonly gateway: Netns
  /** A pod on the gateway's node: <pods>.0.5, <pods6>:0::5. */
  readonly pod: Netns
  /** A pod on another node: <pods>.1.5, <pods6>:1::5. */
  readonly far: Netns
  readonly folder: string
}

export async function withSites<T>(
  inits: readonly [SiteInit, SiteInit],
  folder: string,
  story: (sites: readonly [Site, Site], internet: Netns) => Promise<T>,
): Promise<T> {
  return withManySites(inits, folder, ([left, right], internet) => {
    if (left === undefined || right === undefined) throw new Error('two sites are made')
    return story([left, right], internet)
  })
}

/** Joins any number of sites, in their order. */
export async function withManySites<T>(
  inits: readonly SiteInit[],
  folder: string,
  story: (sites: readonly Site[], internet: Netns) => Promise<T>,
): Promise<T> {
  return withNetns(async (internet) => {
    await internet.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
    await internet.exec('nft', ['-f', '-'], { input: WATCH })
    const withRest = ([init, ...rest]: readonly SiteInit[], sites: readonly Site[]): Promise<T> =>
      init === undefined
        ? story(sites, internet)
        : withSite(init, internet, folder, (site) => withRest(rest, [...sites, site]))
    return withRest(inits, [])
  })
}

/** The name of a site: the cluster's id, with the lane if that is not 0. */
function nameOf({ cluster, lane: { lane } }: SiteInit): string {
  return lane === 0 ? cluster.spec.id : `${cluster.spec.id}-${lane}`
}

/** Counts on the internet itself the packets of inner addresses, of the tunnels, and all others. */
const WATCH = `table ip watch {
  counter inner { }
  counter tunnel { }
  counter other { }
  chain seen {
    type filter hook prerouting priority -500;
    ip saddr { 10.0.0.0/8, 244.0.0.0/6 } counter name inner
    ip daddr { 10.0.0.0/8, 244.0.0.0/6 } counter name inner
    udp dport 4500 udp sport 4500 counter name tunnel accept
    counter name other
  }
}
table ip6 watch {
  counter inner { }
  chain seen {
    type filter hook prerouting priority -500;
    ip6 saddr fd00::/8 counter name inner
    ip6 daddr fd00::/8 counter name inner
  }
}`

export async function watched(internet: Netns): Promise<{ inner: number; tunnel: number; other: number }> {
  const [text = '', text6 = ''] = await Promise.all(
    ['ip', 'ip6'].map((family) => internet.exec('nft', ['list', 'counters', 'table', family, 'watch'])),
  )
  const count = (name: string, from = text): number =>
    Number(new RegExp(`counter ${name} \\{\\s+packets (\\d+)`).exec(from)?.[1] ?? NaN)
  return { inner: count('inner') + count('inner', text6), tunnel: count('tunnel'), other: count('other') }
}

function withSite<T>(init: SiteInit, internet: Netns, folder: string, story: (site: Site) => Promise<T>): Promise<T> {
  return withNetns((gateway) =>
    withNetns((pod) =>
      withNetns(async (far) => {
        const own = join(folder, nameOf(init))
        mkdirSync(join(own, 'wireguard'), { recursive: true })
        await wireSite(init, { internet, gateway, pod, far })
        return story({ init, gateway, pod, far, folder: own })
      }),
    ),
  )
}

async function wireSite(
  init: SiteInit,
  { internet, gateway, pod, far }: { internet: Netns; gateway: Netns; pod: Netns; far: Netns },
): Promise<void> {
  const { pods } = init
  const ip = (ns: Netns, text: string): Promise<string> => ns.exec('ip', text.split(' '))
  if (init.pods6 !== undefined) await Promise.all([gateway, pod, far].map(withoutDad))
  const port = `to-${nameOf(init)}`
  await ip(gateway, `link add uplink type veth peer name ${port} netns ${internet.name}`)
  await ip(internet, `address add ${init.router}/24 dev ${port}`)
  await ip(internet, `link set ${port} up`)
  await ip(gateway, `address add ${init.address}/24 dev uplink`)
  await ip(gateway, 'link set uplink up')
  await ip(gateway, `route add default via ${init.router}`)
  // The routeagent adds this route, so that packets that no lane carries do not leave the node.
  await ip(gateway, 'route add unreachable 244.0.0.0/8')
  await ip(gateway, 'link add br-pods type bridge')
  await ip(gateway, `address add ${pods}.0.1/24 dev br-pods`)
  await ip(gateway, 'link set br-pods up')
  await ip(gateway, `link add pod0 type veth peer name eth0 netns ${pod.name}`)
  await ip(gateway, 'link set pod0 master br-pods up')
  await ip(gateway, `link add sealane-vx type veth peer name eth0 netns ${far.name}`)
  await ip(gateway, `address add ${pods}.1.1/24 dev sealane-vx`)
  await ip(gateway, 'link set sealane-vx up')
  for (const [ns, subnet] of [
    [pod, 0],
    [far, 1],
  ] as const) {
    await ip(ns, `address add ${pods}.${subnet}.5/24 dev eth0`)
    await ip(ns, 'link set eth0 up')
    await ip(ns, `route add default via ${pods}.${subnet}.1`)
  }
  if (init.pods6 !== undefined) await wirePods6(init.pods6, { gateway, pod, far })
}

/**
 * Switches duplicate address detection off for later devices. It takes up to two seconds, in which the kernel resolves
 * no neighbour for forwarded packets, because it asks from the link-local address. No other machine has these
 * addresses.
 */
async function withoutDad(ns: Netns): Promise<void> {
  await ns.exec('sysctl', ['-qw', 'net.ipv6.conf.default.accept_dad=0'])
}

async function wirePods6(
  pods6: string,
  { gateway, pod, far }: { gateway: Netns; pod: Netns; far: Netns },
): Promise<void> {
  const ip = (ns: Netns, text: string): Promise<string> => ns.exec('ip', ['-6', ...text.split(' ')])
  for (const [ns, subnet, device] of [
    [pod, 0, 'br-pods'],
    [far, 1, 'sealane-vx'],
  ] as const) {
    await ip(gateway, `address add ${pods6}:${subnet}::1/64 dev ${device}`)
    await ip(ns, `address add ${pods6}:${subnet}::5/64 dev eth0`)
    await ip(ns, `route add default via ${pods6}:${subnet}::1`)
  }
}

/** A gateway process in a site. */
export class GatewayProcess {
  readonly #child: ChildProcess
  readonly objects = new Map<string, KubeObject>()
  readonly gone: string[] = []
  left = false
  errors = ''
  readonly #listeners: ((object: KubeObject) => void)[] = []

  constructor(site: Site) {
    const { init } = site
    const runner = compiledProgram(join(import.meta.dirname, 'run-gateway.ts'))
    const lanes = {
      lanes: [init.lane],
      ...(init.observedAddress === undefined ? {} : { observedAddress: init.observedAddress }),
      ...(init.openPorts === undefined ? {} : { openPorts: init.openPorts }),
      ...(init.sleepAfterMs === undefined ? {} : { sleepAfterMs: init.sleepAfterMs }),
    }
    const command = [process.execPath, runner, 'gw', join(site.folder, 'nodes'), JSON.stringify(lanes)]
    const inside = ['netns', 'exec', site.gateway.name, ...withSockets(join(site.folder, 'wireguard'), command)]
    this.#child = spawn('ip', inside, { stdio: ['pipe', 'pipe', 'pipe'] })
    this.#child.stderr?.on('data', (chunk: Buffer) => {
      this.errors += chunk.toString()
      if (process.env['SEALANE_TEST_LOG'] === '1') process.stderr.write(chunk)
    })
    createInterface({ input: this.#child.stdout! }).on('line', (line) => this.#onLine(line))
    for (const object of siteObjects(site)) this.put(object)
  }

  put(object: KubeObject): void {
    this.#child.stdin?.write(`${JSON.stringify({ put: object })}\n`)
  }

  drop(kind: Kind, name: string): void {
    this.#child.stdin?.write(`${JSON.stringify({ drop: [kind, name] })}\n`)
  }

  /** Sets the wall clock of the process; `wrongByMs` is its error from now on. */
  setWallClock(wrongByMs: number): void {
    this.#child.stdin?.write(`${JSON.stringify({ setWallClock: wrongByMs })}\n`)
  }

  onObject(listener: (object: KubeObject) => void): void {
    this.#listeners.push(listener)
    for (const object of this.objects.values()) listener(object)
  }

  get status(): Gateway['status'] {
    return (this.objects.get('Gateway/gw') as Gateway | undefined)?.status
  }

  stateOf(cluster: string): string | undefined {
    return this.status?.connections.find((connection) => connection.cluster === cluster)?.state
  }

  /** Ends the process as a service manager would, and waits until it has ended. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const ended = new Promise((resolve) => this.#child.once('exit', resolve))
    this.#child.kill(signal)
    await ended
  }

  #onLine(line: string): void {
    const reported = JSON.parse(line) as { object?: KubeObject; gone?: [Kind, string]; left?: boolean }
    if (reported.left === true) this.left = true
    if (reported.gone !== undefined) this.gone.push(reported.gone.join('/'))
    if (reported.object === undefined) return
    this.objects.set(`${reported.object.kind}/${reported.object.metadata.name}`, reported.object)
    for (const listener of this.#listeners) listener(reported.object)
  }
}

function siteObjects({ init }: Site): KubeObject[] {
  const podCIDRs = (subnet: number): [string, ...string[]] => {
    const { pods, pods6 } = init
    return [`${pods}.${subnet}.0/24`, ...(pods6 === undefined ? [] : [`${pods6}:${subnet}::/64`])]
  }
  return [
    membership(init.cluster.spec.id, 'joined', init.exposure),
    init.cluster,
    node('gw', init.address, ...podCIDRs(0)),
    node('worker', `${init.address}9`, ...podCIDRs(1)),
  ]
}

export function membership(clusterId: string, phase: 'joined' | 'leaving', exposure?: Exposure): KubeObject {
  const stated = exposure === undefined ? {} : { exposure }
  return membershipObject({ clusterId, phase, clusterset: 'test', ...stated })
}

interface Running {
  readonly process: GatewayProcess
  readonly site: Site
}

/** Does the work of the broker and the agents: each side gets the other's Cluster and Endpoints. */
export function introduce(a: Running, b: Running): void {
  report(a, b)
  report(b, a)
}

/** From now on `to` gets the Cluster and the Endpoints of `from`. */
export function report(from: Running, to: Running): void {
  to.process.put(from.site.init.cluster)
  from.process.onObject((object) => {
    const own = object.kind === 'Endpoint' && object.spec.cluster === from.site.init.cluster.spec.id
    if (own) to.process.put(object)
  })
}

export async function untilUp(process: GatewayProcess, cluster: string): Promise<void> {
  await eventually(() => process.stateOf(cluster) === 'up', {
    deadlineMs: 20_000,
    say: `connection to ${cluster} up (${process.errors})`,
  })
}

/** Runs a gateway in each site, gives each the other's objects, and runs the story once both are up. */
export async function withGateways(
  sites: readonly [Site, Site],
  story: (left: GatewayProcess, right: GatewayProcess) => Promise<void>,
): Promise<void> {
  const [left, right] = [new GatewayProcess(sites[0]), new GatewayProcess(sites[1])]
  try {
    introduce({ process: left, site: sites[0] }, { process: right, site: sites[1] })
    await Promise.all([untilUp(left, sites[1].init.cluster.spec.id), untilUp(right, sites[0].init.cluster.spec.id)])
    await story(left, right)
  } finally {
    await Promise.all([left.stop(), right.stop()])
  }
}
