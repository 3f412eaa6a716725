/** Two gateways, each behind address translation that lets no call in. */
import t from 'tap'
import { GatewayProcess, type SiteInit, introduce } from '../gateway/support/netns-sites.ts'
import { MILANO, type Running, TOKYO, idOf, msUntilUp, withTwo } from '../gateway/support/two-gateways.ts'
import { eventually } from '../support/eventually.ts'
import { attack } from './support/attack.ts'

t.setTimeout(240_000)

const HIDDEN_MILANO: SiteInit = { ...MILANO, lane: { lane: 0 }, observedAddress: '203.0.113.9' }

/**
 * The router translates both sides, with a port for each flow, and drops every packet that belongs to no flow from
 * inside.
 */
const NATS = `table ip nat {
  chain out { type nat hook postrouting priority srcnat; masquerade random; }
  chain in { type filter hook forward priority filter; ct state new ip saddr 192.0.2.0/24 ip daddr 198.51.100.0/24 jump closed; ct state new ip saddr 198.51.100.0/24 jump closed; }
  chain closed { drop; }
}`

await attack('both-behind-nat', (t) =>
  withTwo(t, [HIDDEN_MILANO, TOKYO], async (milano, tokyo, internet) => {
    await internet.exec('nft', ['-f', '-'], { input: NATS })
    introduce(milano, tokyo)
    const said = async (one: Running, other: Running): Promise<string> => {
      const connection = () => one.process.status?.connections.find(({ cluster }) => cluster === idOf(other))
      await eventually(() => (connection()?.message ?? '').includes('neither gateway'), {
        say: connection()?.message ?? '',
      })
      return connection()?.message ?? ''
    }
    const todo =
      'give one gateway a public address, or forward UDP 4500 to it, and publish that address ' +
      '(annotation sealane.io/public-address of its Node, publicAddress in site.yaml), ' +
      'or let a member that both reach relay (sealane.io/relay, relay in site.yaml)'
    const seen = (here: string, there: string): string =>
      `neither gateway is reachable from outside (observed address here ${here}, there ${there}): ${todo}`
    t.match(await said(milano, tokyo), seen('203.0.113.9', '203.0.113.1'))
    t.match(await said(tokyo, milano), seen('203.0.113.1', '203.0.113.9'))
    const ready = milano.process.status?.conditions?.find(({ type }) => type === 'Ready')
    t.match(ready, { reason: 'LaneConnecting', message: /neither gateway is reachable from outside/ })

    // The operator follows the advice in the status: the router forwards calls to tokyo, and tokyo publishes that
    // address.
    await internet.exec('nft', ['insert', 'rule', 'ip', 'nat', 'closed', 'ip', 'daddr', '198.51.100.20', 'accept'])
    await tokyo.process.stop()
    const init: SiteInit = { ...TOKYO, lane: { lane: 0, publicAddress: '198.51.100.20' } }
    tokyo.process = new GatewayProcess({ ...tokyo.site, init })
    introduce(milano, tokyo)
    await msUntilUp(milano, tokyo)
    t.equal(milano.process.status?.connections[0]?.message, '', 'and the lane is up')
  }),
)
