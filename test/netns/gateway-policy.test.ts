/**
 * A gateway that has been taken over: no policy of its own, routes and WireGuard as it likes. What it cannot reach at
 * the other end is kept from it there.
 */
import { join } from 'node:path'
import t from 'tap'
import { type DropReason, dropCounter } from '../../gateway/drop-reasons.ts'
import { parseCounters } from '../../kernel/parse-nft.ts'
import { introduce } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { MILANO, PARIS, type Running, msUntilUp, withTwo } from '../gateway/support/two-gateways.ts'
import { netnsMissing } from '../support/netns.ts'

const skip = netnsMissing() ?? false

/** Addresses that the evil gateway gives itself: one of its own cluster, one of nobody. */
const OWN = '244.1.0.9'
const SPOOFED = '244.7.0.9'

const FORBIDDEN: readonly (readonly [what: string, address: string])[] = [
  ['an address of the node', '192.168.77.1'],
  ['a machine in its LAN', '192.168.77.2'],
  ['a pod, by its own address', '10.42.0.5'],
  ['a service', '10.43.0.1'],
  ['a third cluster', '244.9.0.1'],
  ['a clusterset IP', '245.0.0.1'],
  ['a lane address of a third cluster', '246.0.9.0'],
]

const NOT_FOR_US = 'in-not-ours'
const NOT_A_PROBE = 'lane-address-no-probe'

async function takeOver({ process, site }: Running): Promise<void> {
  const { gateway, folder } = site
  await process.stop('SIGKILL')
  await gateway.exec('nft', ['delete', 'table', 'ip', 'sealane_gateway'])
  const inside = 'mount -t tmpfs tmpfs /run && mkdir /run/wireguard && mount --bind "$0" /run/wireguard && exec "$@"'
  const wg = (...args: string[]): Promise<string> =>
    gateway.exec('unshare', ['-m', 'sh', '-c', inside, join(folder, 'wireguard'), 'wg', ...args])
  const key = (await wg('show', 'sealane0', 'peers')).trim()
  await wg('set', 'sealane0', 'peer', key, 'allowed-ips', '0.0.0.0/0')
  for (const address of [OWN, SPOOFED]) await gateway.exec('ip', ['address', 'add', `${address}/32`, 'dev', 'lo'])
  for (const [, address] of FORBIDDEN) {
    // Before its own routes and addresses are asked.
    await gateway.exec('ip', ['route', 'replace', `${address}/32`, 'dev', 'sealane0', 'table', '7311'])
  }
}

async function dropped({ site }: Running, reason: DropReason): Promise<number> {
  const text = await site.gateway.exec('nft', ['list', 'counters', 'table', 'ip', 'sealane_gateway'])
  return parseCounters(text).get(dropCounter(reason)) ?? NaN
}

t.test('what an evil gateway cannot reach', { skip, timeout: 60_000 }, async (t) => {
  await withTwo(t, [MILANO, PARIS], async (milano, paris) => {
    introduce(milano, paris)
    await msUntilUp(milano, paris)
    await milano.site.gateway.exec('ip', ['address', 'add', '192.168.77.1/24', 'dev', 'lo'])
    await takeOver(paris)
    const evil = (to: string, from: string): Promise<string> =>
      pings(paris.site.gateway, to, '-I', from, '-W', '1', '-i', '0.2')
    t.match(await evil('244.0.0.5', OWN), '1 received', 'a pod by its global address: that is what lanes are for')
    for (const [what, address] of FORBIDDEN) {
      const before = await dropped(milano, NOT_FOR_US)
      t.match(await evil(address, OWN), '0 received', what)
      t.equal((await dropped(milano, NOT_FOR_US)) - before, 1, `${what}: counted`)
    }
    t.match(await evil('244.0.0.5', SPOOFED), '0 received', 'a pod, in the name of a third cluster')
    const before = await dropped(milano, NOT_A_PROBE)
    const knock = `require('node:net').connect({ host: '246.0.1.0', port: 22, localAddress: '${OWN}' }).setTimeout(500, () => process.exit()).on('error', () => process.exit())`
    await paris.site.gateway.exec(process.execPath, ['-e', knock])
    t.ok((await dropped(milano, NOT_A_PROBE)) > before, 'nothing but probes at the lane address')
    t.match(await pings(milano.site.pod, '246.0.2.0', '-W', '1'), '0 received', 'and our pods do not reach theirs')
  })
})
