/** The address of a gateway's own machine changes while its lane is in use. */
import t from 'tap'
import type { Netns } from '../support/netns.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { MILANO, PARIS, type Running } from '../gateway/support/two-gateways.ts'
import { attack } from './support/attack.ts'
import { withLaneUp } from './support/lane-up.ts'

t.setTimeout(240_000)

await attack('own-address-changes', (t) =>
  withLaneUp(t, [MILANO, PARIS], async (milano) => {
    for (const [from, to] of [
      ['192.0.2.10', '192.0.2.77'],
      ['192.0.2.77', '192.0.2.10'],
    ] as const) {
      const lost = await callsWhile(milano, () => renumber(milano.site.gateway, from, to))
      t.ok(lost < 40, `${from} became ${to}: ${lost} of 80 calls, ten a second, were lost`)
    }
  }),
)

async function renumber(gateway: Netns, from: string, to: string): Promise<void> {
  await gateway.exec('ip', ['address', 'del', `${from}/24`, 'dev', 'uplink'])
  await gateway.exec('ip', ['address', 'add', `${to}/24`, 'dev', 'uplink'])
  await gateway.exec('ip', ['route', 'add', 'default', 'via', MILANO.router])
}

/** How many of 80 pings, ten a second, got no answer during the story. */
async function callsWhile({ site }: Running, story: () => Promise<void>): Promise<number> {
  const calls = pings(site.pod, '244.1.0.5', '-c', '80', '-i', '0.1')
  await story()
  const text = await calls
  const [, sent, received] = /(\d+) packets transmitted, (\d+) received/.exec(text) ?? []
  return Number(sent) - Number(received)
}
