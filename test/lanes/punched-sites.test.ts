/**
 * Two sites behind NATs that map alike for all destinations find each other's places by a relay, and go on without it.
 * The link returns to the relay when the way between the NATs is cut, and loses only what was sent before the first doubt.
 */
import t from 'tap'
import { chain, firewall } from '../netns/support/fault.ts'
import { withPlainSites } from '../netns/support/plain-sites.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const HIDDEN = (name: string, uplinks: string, pods: string) => ({
  ...{ name, uplinks, pods, nodes: ['gw1'] },
  spec: '  gateways: [{ node: gw1 }]\n',
})
const MILANO = {
  ...{ name: 'milano', uplinks: '192.0', pods: '10.42', nodes: ['gw1'] },
  spec: '  gateways: [{ node: gw1, publicAddress: 192.0.11.2, relay: true }]\n',
}
const SITES = [MILANO, HIDDEN('paris', '198.51', '10.52'), HIDDEN('roma', '198.52', '10.62')]
const NATS = [
  { inside: '198.51.11.2', outside: '203.0.114.51' },
  { inside: '198.52.11.2', outside: '203.0.114.52' },
]
const MAPPED = 41_500
/** Two hundred packets a second. */
const PING_MS = 5
const ENDS = '{ 198.51.11.2, 198.52.11.2 }'

/** A NAT for each of the two, which keeps no port, and lets in anyone who knows the mapped one. */
async function translate(internet: Netns): Promise<unknown> {
  const out = NATS.flatMap(({ inside, outside }) => [
    `ip saddr ${inside} udp sport 4500 snat to ${outside}:${MAPPED}`,
    `ip saddr ${inside} snat to ${outside}`,
  ])
  const back = NATS.map(({ inside, outside }) => `ip daddr ${outside} udp dport ${MAPPED} dnat to ${inside}:4500`)
  return firewall(
    internet,
    `chain out { type nat hook postrouting priority srcnat; ${out.join('; ')}; }
    chain back { type nat hook prerouting priority dstnat; ${back.join('; ')}; }
    ${chain('forward', `ct status dnat accept; ct state new ip saddr ${ENDS} ip daddr ${ENDS} drop`)}`,
  )
}

t.setTimeout(290_000)

t.test('two sites behind NATs do without their relay', { skip: netnsMissing() ?? false }, async (t) => {
  await withPlainSites(
    temporaryFolder(t),
    SITES,
    async ([milano, paris, roma], { internet }) => {
      if (milano === undefined || paris === undefined || roma === undefined) throw new Error('sites')
      const link = () => roma.gateway('gw1')?.connections.find(({ cluster }) => cluster === 'paris')
      const [here, there] = [roma.machine('gw1'), paris.machine('gw1')]
      for (const site of [milano, paris, roma]) site.up('gw1')
      try {
        const isUpAt = (place: string) => link()?.state === 'up' && link()?.usingAddress === place
        await eventually(() => isUpAt(`203.0.114.51:${MAPPED}`), { deadlineMs: 120_000, say: 'punched' })
        t.equal(link()?.usingRelay, undefined)
        await eventually(() => here.pings(there.podAddress), { deadlineMs: 20_000, say: 'a ping without the relay' })
        t.match(await here.run(['show', 'connections', '--site', roma.file]), /paris .* up .* punched /)

        let text = ''
        const every = String(PING_MS / 1000)
        const ping = here.netns.spawn('ping', ['-n', '-i', every, '-I', here.podAddress, there.podAddress])
        ping.stdout?.on('data', (bytes: Buffer) => (text += bytes.toString()))
        const answered = (): number[] => [...text.matchAll(/icmp_seq=(\d+) ttl/g)].map(([, seq]) => Number(seq))
        await eventually(() => answered().length > 100, { say: 'pings before' })
        const saidBefore = [here, there].map(({ said }) => said.length)

        const cut = `type filter hook forward priority -10; ip saddr ${ENDS} ip daddr ${ENDS} drop`
        await internet.exec('nft', ['-f', '-'], { input: `table ip cut {\nchain forward {\n${cut}\n}\n}\n` })
        const cutAt = performance.now()
        const isRelayed = () => link()?.state === 'up' && link()?.usingRelay === 'milano'
        await eventually(isRelayed, { deadlineMs: 60_000, say: 'relayed once the way is cut' })
        t.comment(`the relay carries the link ${Math.round(performance.now() - cutAt)} ms after the cut`)
        const handedOver = answered().length
        await eventually(() => answered().length > handedOver + 400, { deadlineMs: 20_000, say: 'pings after' })
        ping.kill('SIGINT')
        const sequence = answered()
        const gaps = sequence.slice(1).map((seq, i) => seq - (sequence[i] ?? seq) - 1)
        t.comment(`${gaps.reduce((sum, gap) => sum + gap, 0)} packets lost, ${Math.max(...gaps)} of them in a row`)
        t.equal(new Set(sequence).size, sequence.length, 'nothing comes twice')
        // In doubt packets go both ways, so probes were answered before the link would have counted as down.
        for (const [i, { name, said }] of [here, there].entries())
          t.notMatch(said.slice(saidBefore[i]), /"to":"down"/, `${name}: the link was handed over without being down`)
      } catch (error) {
        t.comment(JSON.stringify([link(), paris.gateway('gw1')?.connections]))
        t.comment([milano, paris, roma].map((site) => `${site.plan.name} ${site.said()}`).join('\n'))
        throw error
      }
    },
    { prepare: translate },
  )
})
