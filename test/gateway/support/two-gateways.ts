/** Two sites, each with a gateway process, for tests of how lanes come up and recover. */
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import type { Netns } from '../../support/netns.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { GatewayProcess, type Site, type SiteInit, withManySites } from './netns-sites.ts'
import { DUAL_MILANO, DUAL_PARIS, cluster } from './worlds.ts'

export const MILANO: SiteInit = {
  cluster: cluster('milano', 1, '10.42.0.0/16', '244.0.0.0/16'),
  pods: '10.42',
  address: '192.0.2.10',
  router: '192.0.2.1',
  lane: { lane: 0, publicAddress: '192.0.2.10' },
}
export const PARIS: SiteInit = {
  cluster: cluster('paris', 2, '10.42.0.0/16', '244.1.0.0/16'),
  pods: '10.42',
  address: '198.51.100.20',
  router: '198.51.100.1',
  lane: { lane: 0, publicAddress: '198.51.100.20' },
}
/** The same two with IPv6 pods as well; the lane between them runs over IPv4. */
export const DUAL_STACK_MILANO: SiteInit = { ...MILANO, cluster: DUAL_MILANO, pods6: 'fd42:1:0' }
export const DUAL_STACK_PARIS: SiteInit = { ...PARIS, cluster: DUAL_PARIS, pods6: 'fd42:2:0' }
/** This gateway can call, but cannot be called. */
export const TOKYO: SiteInit = {
  ...PARIS,
  cluster: cluster('tokyo', 3, '10.42.0.0/16', '244.2.0.0/16'),
  lane: { lane: 0 },
  observedAddress: '203.0.113.1',
}

/** Behind the address translation that BEHIND_ROUTER makes of the router in front of milano. */
export const BEHIND_NAT: SiteInit = { ...TOKYO, observedAddress: MILANO.router }

/** The router of the internet translates the packets of tokyo, each flow to a port of its own, and lets no call in. */
export const BEHIND_ROUTER = `table ip nat {
  chain out { type nat hook postrouting priority 100; oifname to-milano masquerade random; }
  chain in { type filter hook forward priority 0; oifname to-tokyo ct state new drop; }
}`

/** A gateway process and its site; a test may replace the process. */
export interface Running {
  process: GatewayProcess
  readonly site: Site
}

/** Runs a gateway in each of two sites, which have not been introduced to each other yet. */
export function withTwo<T>(
  t: Test,
  inits: readonly [SiteInit, SiteInit],
  story: (left: Running, right: Running, internet: Netns) => Promise<T>,
): Promise<T> {
  return withTwoIn(temporaryFolder(t), inits, story)
}

/** Does the same as withTwo(), with a folder for their state, which the caller removes. */
export function withTwoIn<T>(
  folder: string,
  inits: readonly [SiteInit, SiteInit],
  story: (left: Running, right: Running, internet: Netns) => Promise<T>,
): Promise<T> {
  return withManyIn(folder, inits, ([left, right], internet) => {
    if (left === undefined || right === undefined) throw new Error('two gateways run')
    return story(left, right, internet)
  })
}

/** Does the same with any number of gateways, in their order; gatewayOfLane() makes more gateways of a cluster. */
export function withManyIn<T>(
  folder: string,
  inits: readonly SiteInit[],
  story: (gateways: readonly Running[], internet: Netns) => Promise<T>,
): Promise<T> {
  return withManySites(inits, folder, async (sites, internet) => {
    const gateways = sites.map((site): Running => ({ process: new GatewayProcess(site), site }))
    try {
      return await story(gateways, internet)
    } finally {
      await Promise.all(gateways.map(({ process }) => process.stop()))
    }
  })
}

/** Another gateway of the same cluster, in a network of its own: 198.51.<100 + lane>.0/24. */
export function gatewayOfLane(init: SiteInit, lane: number): SiteInit {
  const network = `198.51.${100 + lane}`
  const address = `${network}.20`
  return { ...init, address, router: `${network}.1`, lane: { lane, publicAddress: address } }
}

export const idOf = ({ site }: Running): string => site.init.cluster.spec.id

/** How many milliseconds pass until both report the lane as up. */
export async function msUntilUp(left: Running, right: Running, deadlineMs = 20_000): Promise<number> {
  const start = performance.now()
  const both = (): boolean => left.process.stateOf(idOf(right)) === 'up' && right.process.stateOf(idOf(left)) === 'up'
  await eventually(both, { deadlineMs, say: `the lane up (${left.process.errors}${right.process.errors})` })
  return Math.round(performance.now() - start)
}

/** Kills the whole gateway including WireGuard; only the key file stays. */
export async function vanish({ process, site }: Running): Promise<void> {
  await process.stop('SIGKILL')
  const pids = (await site.gateway.exec('ip', ['netns', 'pids', site.gateway.name])).split('\n')
  for (const pid of pids.filter((text) => text !== '')) {
    const { stdout } = await site.gateway.tryExec('cat', [`/proc/${pid}/comm`])
    if (stdout.startsWith('wireguard')) await site.gateway.tryExec('kill', ['-KILL', pid])
  }
  await site.gateway.tryExec('ip', ['link', 'del', 'sealane0'])
}
