/**
 * Two sites between which no UDP passes are linked over port 443. When UDP passes again, the link leaves that way without
 * an interruption, since probes have shown that the sites can call each other.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type PlainSite, withPlainSites } from '../netns/support/plain-sites.ts'

const SEALANE = join(import.meta.dirname, '../../bin/sealane')
const SITE = (name: string, uplinks: string, pods: string) => ({
  ...{ name, uplinks, pods, nodes: ['gw1'] },
  spec: `  gateways: [{ node: gw1, publicAddress: ${uplinks}.11.2 }]\n`,
})
const SITES = [SITE('paris', '198.51', '10.52'), SITE('roma', '198.52', '10.62')]
const NO_UDP = 'table ip closed { chain forward { type filter hook forward priority 0; ip protocol udp drop; }; }'

t.setTimeout(290_000)

t.test('a link leaves port 443 once UDP passes', { skip: netnsMissing() ?? false }, (t) => {
  const folder = temporaryFolder(t)
  return withPlainSites(
    folder,
    SITES,
    async ([paris, roma], { broker, startBroker, internet }) => {
      if (paris === undefined || roma === undefined) throw new Error('sites')
      const serve = ['relay', 'serve', '--ca', join(folder, 'broker', 'ca.crt'), '--status-listen', '127.0.0.1:0']
      const listen = ['--listen', '0.0.0.0:443', '--state', join(folder, 'relay')]
      const relay: ChildProcess = spawn('ip', ['netns', 'exec', broker.netns.name, SEALANE, ...serve, ...listen])
      let said = ''
      relay.stdout?.on('data', (data: Buffer) => (said += data.toString()))
      relay.stderr?.on('data', (data: Buffer) => (said += data.toString()))
      const link = (from: PlainSite) => from.gateway('gw1')?.connections[0]
      const [here, there] = [paris.machine('gw1'), roma.machine('gw1')]
      try {
        await eventually(() => /#[0-9a-f]{64}/.test(said), { deadlineMs: 20_000, say: 'the relay listens' })
        const [pin = ''] = /[0-9a-f]{64}/.exec(said) ?? []
        await broker.stop()
        startBroker(['--relay', `wss://${broker.address}/#${pin}`])
        for (const site of [paris, roma]) site.up('gw1')
        const isWeb = (site: PlainSite) =>
          link(site)?.state === 'up' && link(site)?.usingRelay === `tcp-443 ${broker.address}`
        await eventually(() => isWeb(paris) && isWeb(roma), { deadlineMs: 90_000, say: 'over port 443' })
        await eventually(() => here.pings(there.podAddress), { deadlineMs: 20_000, say: 'a ping over port 443' })

        await internet.exec('nft', ['delete', 'table', 'ip', 'closed'])
        const openMs = performance.now()
        const isDirect = (site: PlainSite, far: string) =>
          link(site)?.state === 'up' && link(site)?.usingAddress === `${far}:4500`
        await eventually(() => isDirect(paris, there.address) && isDirect(roma, here.address), {
          deadlineMs: 150_000,
          say: 'direct',
        })
        t.comment(`direct ${Math.round((performance.now() - openMs) / 1000)} s after UDP passes`)
        t.equal(link(paris)?.usingRelay, undefined)
        await eventually(() => here.pings(there.podAddress), { deadlineMs: 20_000, say: 'a ping' })
        const downs = [paris, roma].map((site) => /from\W+up\W+to\W+down/.exec(site.said())?.[0])
        t.strictSame(downs, [undefined, undefined], 'the link was never down')
      } catch (error) {
        t.comment(JSON.stringify([link(paris), link(roma)]))
        t.comment([paris, roma].map((site) => `${site.plan.name} ${site.said()}`).join('\n'))
        throw error
      } finally {
        relay.kill('SIGKILL')
        if (relay.exitCode === null && relay.signalCode === null) await once(relay, 'exit')
      }
    },
    { prepare: (net) => net.exec('nft', [NO_UDP]) },
  )
})
