/** What a check can look at, and the small questions that several checks ask. */
import type { Cluster } from '../../model/objects.ts'
import type { Lab } from '../lab.ts'
import type { CheckOf } from '../run-check.ts'
import type { Sites } from '../sites.ts'
import { type SiteRow, podAddress } from '../topology.ts'

export interface World {
  readonly lab: Lab
  readonly sites: Sites
  readonly rows: readonly SiteRow[]
  readonly flat: boolean
}

export type Check = CheckOf<World>

export const ZONE = 'svc.clusterset.local'
export const WEB = `web.shop.${ZONE}`
export const DB = `db.shop.${ZONE}`

export function siteRow(world: World, site: string): SiteRow {
  const row = world.rows.find((candidate) => candidate.name === site)
  if (row === undefined) throw new Error(`no site ${site}`)
  return row
}

/** The addresses under which the other sites reach pods, worked out from the Cluster objects in milano. */
export async function globalAddresses(world: World): Promise<(site: string, pod: string) => string> {
  const clusters = await world.sites.show<Cluster>('milano', 'clusters')
  return (site, pod) => {
    const own = podAddress(siteRow(world, site), pod)
    const cluster = clusters.find((candidate) => candidate.metadata.name === site)
    if (cluster === undefined) throw new Error(`milano does not know ${site}`)
    const network = cluster.spec.globalCIDRs[0] ?? cluster.spec.podCIDRs[0] ?? ''
    return [...network.split('.').slice(0, 2), ...own.split('.').slice(2)].join('.')
  }
}

/** Of one pod. */
export async function globalAddress(world: World, site: string, pod: string): Promise<string> {
  return (await globalAddresses(world))(site, pod)
}

/** Body of a page, or a throw with curl's reason. */
export async function fetchPage(world: World, from: string, url: string, timeout = '3'): Promise<string> {
  const page = await world.lab.exec(from, 'curl', ['-sS', '-m', timeout, url])
  if (page.status !== 0) throw new Error(`${from}: curl ${url}: ${page.stderr.trim()}`)
  return page.stdout.trim()
}

/** `dig +short`, one line per record, sorted. */
export async function digShort(world: World, from: string, type: string, name: string): Promise<string[]> {
  const text = await world.lab.must(from, 'dig', ['+short', '+tries=1', '+time=2', type, name])
  return text
    .split('\n')
    .filter((line) => line !== '')
    .sort()
}

/** NOERROR, NXDOMAIN, SERVFAIL … */
export async function digStatus(world: World, from: string, name: string): Promise<string> {
  const text = await world.lab.exec(from, 'dig', ['+tries=1', '+time=1', 'A', name])
  return /status: (\w+)/.exec(text.stdout)?.[1] ?? 'no answer'
}

/** True once the services of milano and paris have come to where the checks call from; until then what is missing. */
export async function servicesAreKnown(world: World): Promise<true | string> {
  for (const client of ['tokyo-client-1', 'paris-client-0']) {
    for (const name of [WEB, `db-0.milano.${DB}`, `db-1.milano.${DB}`, `db-0.paris.${DB}`]) {
      const status = await digStatus(world, client, name)
      if (status !== 'NOERROR') return `${client}: ${name}: ${status}`
    }
  }
  return true
}

export function expectEqual(what: string, got: unknown, want: unknown): void {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)]
  if (a !== b) throw new Error(`${what}: got ${a}, want ${b}`)
}
