/**
 * A site whose NAT gives each destination another port, and one whose NAT lets in known places only: neither sees the
 * port of the other. They guess it while a relay carries the link, go on without the relay, and return to it when the NAT
 * forgets.
 *
 *   paris ─ box, known ports ─┬─ internet ─┬─ milano, oslo: relays
 *   roma ─ box, symmetric ────┘            └─ broker
 */
import t, { type Test } from 'tap'
import { boxRules } from './support/nat-boxes.ts'
import { withPlainSites } from '../netns/support/plain-sites.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing, withNetns } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const HIDDEN = (name: string, uplinks: string, pods: string) => ({
  ...{ name, uplinks, pods, nodes: ['gw1'] },
  spec: '  gateways: [{ node: gw1 }]\n',
})
const RELAY = (name: string, uplinks: string, pods: string) => ({
  ...{ name, uplinks, pods, nodes: ['gw1'] },
  spec: `  gateways: [{ node: gw1, publicAddress: ${uplinks}.11.2, relay: true }]\n`,
})
const SITES = [
  RELAY('milano', '192.0', '10.42'),
  RELAY('oslo', '192.1', '10.43'),
  HIDDEN('paris', '198.51', '10.52'),
  HIDDEN('roma', '198.52', '10.62'),
]
const PARIS = { lets: 'port', address: '203.0.115.2', inside: ['198.51.11.2'], inner: [4500] } as const
const ROMA = { lets: 'each', address: '203.0.116.2', inside: ['198.52.11.2'], inner: [4500] } as const

const ip = (ns: Netns, ...lines: readonly string[]): Promise<string> =>
  ns.exec('ip', ['-batch', '-'], { input: `${lines.join('\n')}\n` })

/** Puts the box between the internet and the machine, whose router it becomes. */
async function behind(box: Netns, internet: Netns, rules: typeof PARIS | typeof ROMA): Promise<void> {
  const [inside, wan] = [rules.inside[0], `b${rules.address.replaceAll('.', '-')}`]
  const routerOf = (address: string): string => address.replace(/\d+$/, '1')
  await ip(internet, `link set p${inside.replaceAll('.', '-')} netns ${box.name} name lan`)
  await ip(internet, `link add ${wan} type veth peer name wan netns ${box.name}`)
  await ip(internet, `address add ${routerOf(rules.address)}/24 dev ${wan}`, `link set ${wan} up`)
  await ip(box, `address add ${routerOf(inside)}/24 dev lan`, 'link set lan up')
  await ip(box, `address add ${rules.address}/24 dev wan`, 'link set wan up')
  await ip(box, `route add default via ${routerOf(rules.address)}`)
  await box.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
  await box.exec('nft', ['-f', '-'], { input: boxRules(rules) })
}

t.setTimeout(480_000)

t.test('a symmetric NAT and one that takes known ports do without a relay', { skip: netnsMissing() ?? false }, (t) =>
  withNetns((parisBox) => withNetns((romaBox) => story(t, parisBox, romaBox))),
)

async function story(t: Test, parisBox: Netns, romaBox: Netns): Promise<void> {
  await withPlainSites(
    temporaryFolder(t),
    SITES,
    async ([milano, oslo, paris, roma]) => {
      if (milano === undefined || oslo === undefined || paris === undefined || roma === undefined)
        throw new Error('sites')
      const linkOf = (from: typeof roma, to: string) =>
        from.gateway('gw1')?.connections.find(({ cluster }) => cluster === to)
      const [here, there] = [roma.machine('gw1'), paris.machine('gw1')]
      for (const site of [milano, oslo, paris, roma]) site.up('gw1')
      const isRelayed = () => linkOf(roma, 'paris')?.state === 'up' && linkOf(roma, 'paris')?.usingRelay !== undefined
      const isAtPlace = (from: typeof roma, to: string, address: string) => {
        const { state, usingAddress = '', usingRelay } = linkOf(from, to) ?? {}
        return state === 'up' && usingRelay === undefined && usingAddress.startsWith(`${address}:`)
      }
      const isGuessed = () => isAtPlace(roma, 'paris', PARIS.address) && isAtPlace(paris, 'roma', ROMA.address)
      try {
        await eventually(isRelayed, { deadlineMs: 120_000, say: 'relayed at first' })
        const relayedAt = performance.now()
        // An attempt that a busy machine spoils is repeated after a minute.
        await eventually(isGuessed, { deadlineMs: 150_000, say: 'at a guessed port' })
        t.comment(
          `the port was guessed ${Math.round(performance.now() - relayedAt)} ms after the relay carried the link`,
        )
        t.match(linkOf(roma, 'paris')?.usingAddress, /:41000$/)

        const ping = ['-q', '-i', '0.2', '-w', '10', '-I', here.podAddress, there.podAddress]
        let lost = 100
        // A process that gets no processor for seconds loses any link, and tries again after a minute.
        const stays = async (): Promise<boolean> => {
          if (!isGuessed()) return false
          const { stdout } = await here.netns.tryExec('ping', ping)
          lost = Number(/([\d.]+)% packet loss/.exec(stdout)?.[1] ?? '100')
          return lost < 3 && isGuessed()
        }
        await eventually(stays, { deadlineMs: 150_000, say: 'the link stays there under traffic' })
        t.comment(`${lost} % of the packets of 10 s are lost`)

        const address = `${ROMA.address}/24 dev wan`
        await ip(romaBox, `address del ${address}`, `address add ${address}`, 'route add default via 203.0.116.1')
        const forgottenAt = performance.now()
        await eventually(isRelayed, { deadlineMs: 60_000, say: 'relayed once the NAT has forgotten' })
        t.comment(`a relay carries the link ${Math.round(performance.now() - forgottenAt)} ms after the NAT forgot`)
        await eventually(() => here.pings(there.podAddress), { deadlineMs: 20_000, say: 'a ping through the relay' })
        await eventually(
          async () =>
            !(await here.netns.exec('nft', ['list', 'tables'])).includes('sealane_reach') ||
            !(await here.netns.exec('nft', ['list', 'table', 'ip', 'sealane_reach'])).includes('outside'),
          {
            deadlineMs: 20_000,
            say: 'the device has its own port for all places again',
          },
        )
      } catch (error) {
        t.comment(JSON.stringify([linkOf(roma, 'paris'), linkOf(paris, 'roma')]))
        t.comment(await here.netns.exec('nft', ['list', 'ruleset']))
        t.comment([milano, oslo, paris, roma].map((site) => `${site.plan.name} ${site.said()}`).join('\n'))
        throw error
      }
    },
    {
      prepare: async (internet) => {
        await behind(parisBox, internet, PARIS)
        await behind(romaBox, internet, ROMA)
      },
    },
  )
}
