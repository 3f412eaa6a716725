/** A gateway of milano loses power while tokyo calls: how long nobody answered is seen from the calls themselves. */
import { join } from 'node:path'
import type { CallsSeen } from '../calls.ts'
import { LINK_UP, siteProcesses } from '../sites.ts'
import { until } from '../until.ts'
import { type Check, type World, fetchPage, globalAddress, siteRow } from './world.ts'

const PROGRAM = join(import.meta.dirname, '..', 'calls.ts')
const PORT = '7000'
/** Each takes one of two gateways of milano, there and back: that none takes the one that dies does not happen. */
const CONNECTIONS = 20
const DEAD = { node: 'gw2', lane: 1 } as const

export const powerLoss: Check = {
  name: 'a gateway of milano loses power: connections continue',
  async run(world) {
    const { lab } = world
    const address = await globalAddress(world, 'milano', 'db-0')
    await start(world, 'milano-db-0', 'answers', ['serve', PORT])
    await start(world, 'tokyo-client-1', 'calls', ['call', address, PORT, String(CONNECTIONS)])
    const share = await shareOfDead(world)
    await lab.powerOff(`milano-${DEAD.node}`, ['wan', 'lan'])
    await until('tokyo to miss it', 20_000, () => isMissed(world), 250)
    await lab.stop('calls')
    const { connections, broken, longestMs } = JSON.parse(await lab.tail('calls', 1)) as CallsSeen
    await lab.stop('answers')
    if (broken > 0) throw new Error(`${broken} of ${connections} connections broke`)
    // New ones do not take it either.
    for (let i = 0; i < CONNECTIONS; i += 1) await fetchPage(world, 'tokyo-client-1', `http://${address}:5432/`, '1')
    const carried = `it carried ${Math.round(share * 100)} % of milano's traffic`
    return `${carried}; of ${connections} connections none broke, and none was without an answer for over ${longestMs} ms`
  },
}

/** Starts the program in a pod, and waits until it says that it is ready. */
async function start({ lab }: World, pod: string, name: string, args: readonly string[]): Promise<void> {
  lab.spawn(pod, name, process.execPath, [PROGRAM, ...args])
  await until(`${name} to be ready`, 10_000, async () => {
    const said = await lab.tail(name)
    return said === 'ready' ? true : said
  })
}

async function shareOfDead({ sites }: World): Promise<number> {
  const rows = await sites.show<{ readonly node: string; readonly share?: number }>('milano', 'gateways')
  const share = rows.find(({ node }) => node === DEAD.node)?.share ?? 0
  if (share === 0) throw new Error(`milano-${DEAD.node} carries nothing: its end would show nothing`)
  return share
}

/** True once none of tokyo's gateways has a link with it. */
async function isMissed(world: World): Promise<true | string> {
  const gateways = siteProcesses(siteRow(world, 'tokyo')).filter(({ part }) => part === 'gateway')
  for (const [lane, row] of gateways.entries()) {
    const link = `cluster="milano",lane="${lane}",remote_lane="${DEAD.lane}"`
    if ((await world.sites.metric(row, LINK_UP, link)) > 0) return `${row.name} takes its link as up`
  }
  return true
}
