/** A relayed link goes back to the far gateway's own address once that can be called. */
import { readFileSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import type { Undo } from '../netns/support/fault.ts'
import { hide } from '../netns/support/lost-faults.ts'
import { withPlainSites } from '../netns/support/plain-sites.ts'

const HIDDEN = (name: string, uplinks: string, pods: string) => ({
  ...{ name, uplinks, pods, nodes: ['gw1'] },
  spec: '  gateways: [{ node: gw1 }]\n',
})
const MILANO = {
  ...{ name: 'milano', uplinks: '192.0', pods: '10.42', nodes: ['gw1'] },
  spec: '  gateways: [{ node: gw1, publicAddress: 192.0.11.2, relay: true }]\n',
}
const SITES = [MILANO, HIDDEN('paris', '198.51', '10.52'), HIDDEN('roma', '198.52', '10.62')]

t.setTimeout(290_000)

t.test('a relayed link goes back once an end can be called', { skip: netnsMissing() ?? false }, async (t) => {
  let seen: Undo | undefined
  await withPlainSites(
    temporaryFolder(t),
    SITES,
    async ([milano, paris, roma]) => {
      if (milano === undefined || paris === undefined || roma === undefined) throw new Error('sites')
      const link = () => roma.gateway('gw1')?.connections.find(({ cluster }) => cluster === 'paris')
      const [here, there] = [roma.machine('gw1'), paris.machine('gw1')]
      for (const site of [milano, paris, roma]) site.up('gw1')
      try {
        const isRelayed = () => link()?.state === 'up' && link()?.usingRelay === 'milano'
        await eventually(isRelayed, { deadlineMs: 90_000, say: 'relayed' })
        await eventually(() => here.pings(there.podAddress), { deadlineMs: 20_000, say: 'a ping through the relay' })
        await seen?.()
        const text = readFileSync(paris.file, 'utf8')
        writeFileSync(paris.file, text.replace('{ node: gw1 }', `{ node: gw1, publicAddress: ${there.address} }`))
        await there.stop()
        paris.up('gw1')
        const isDirect = () => link()?.state === 'up' && link()?.usingAddress === `${there.address}:4500`
        await eventually(isDirect, { deadlineMs: 90_000, say: 'direct' })
        t.equal(link()?.usingRelay, undefined)
        await eventually(() => here.pings(there.podAddress), { deadlineMs: 20_000, say: 'a ping without the relay' })
      } catch (error) {
        t.comment(JSON.stringify([link(), paris.gateway('gw1')?.connections]))
        t.comment([milano, paris, roma].map((site) => `${site.plan.name} ${site.said()}`).join('\n'))
        throw error
      }
    },
    { prepare: async (internet) => (seen = await hide(internet)) },
  )
})
