/**
 * Links between all pairs of gateways, with real tunnels and real packets: the gateway of one site has a link with each
 * of the three of another, and any one of them is enough.
 */
import { join } from 'node:path'
import t from 'tap'
import { introduce } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { MILANO, PARIS, type Running, gatewayOfLane, vanish, withManyIn } from '../gateway/support/two-gateways.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { withSockets } from '../support/wireguard-sockets.ts'

const skip = netnsMissing() ?? false
t.setTimeout(180_000 * SLOWNESS)

/** The links of a gateway as `<own lane>-<remote lane> <state>`, in order. */
function links({ process }: Running): string {
  const all = process.status?.connections ?? []
  return all
    .map(({ lane, remoteLane, state }) => `${lane}-${remoteLane} ${state}`)
    .sort()
    .join(', ')
}

/** The UDP port that a device of a gateway listens on. */
async function listening({ site }: Running, device: string): Promise<string> {
  const [command = '', ...args] = withSockets(join(site.folder, 'wireguard'), ['wg', 'show', device, 'listen-port'])
  return (await site.gateway.exec(command, args)).trim()
}

/** The devices that lead to the other cluster's pods. */
async function devicesTo({ site }: Running, prefix: string): Promise<string[]> {
  const text = await site.gateway.exec('ip', ['route', 'show', 'table', '7311', prefix])
  return [...text.matchAll(/dev (sealane\d)/g)].map(([, device = '']) => device).sort()
}

/** A table that drops every packet of the links to these gateways. */
function blocked(gateways: readonly Running[]): string {
  const addresses = gateways.map(({ site }) => site.init.address).join(', ')
  return `table ip block {
    chain in { type filter hook input priority -10; ip saddr { ${addresses} } drop; }
    chain out { type filter hook output priority -10; ip daddr { ${addresses} } drop; }
  }`
}

t.test('one gateway and three', { skip, timeout: 150_000 * SLOWNESS }, async (t) => {
  const inits = [MILANO, PARIS, gatewayOfLane(PARIS, 1), gatewayOfLane(PARIS, 2)]
  await withManyIn(temporaryFolder(t), inits, async ([milano, ...paris], internet) => {
    if (milano === undefined) throw new Error('milano runs')
    for (const one of paris) introduce(milano, one)
    const untilOver = async (...lanes: number[]): Promise<void> => {
      const devices = lanes.map((lane) => `sealane${lane}`).join()
      await eventually(async () => (await devicesTo(milano, '244.1.0.0/16')).join() === devices, {
        deadlineMs: 20_000,
        say: `milano sends over ${devices} (${links(milano)}; ${milano.process.errors})`,
      })
      const back = lanes.map((lane) => paris[lane]).filter((one) => one !== undefined)
      await eventually(() => back.every((one) => links(one).endsWith('-0 up')), {
        deadlineMs: 20_000,
        say: `and they send back (${paris.map(links).join('; ')})`,
      })
    }
    const carries = async (say: string, survivors: readonly Running[]): Promise<void> => {
      t.match(await pings(milano.site.pod, '244.1.0.5'), '1 received', `${say}: there`)
      for (const { site } of survivors) t.match(await pings(site.pod, '244.0.0.5'), '1 received', `${say}: and back`)
    }

    await t.test('every pair has its link', async (t) => {
      await untilOver(0, 1, 2)
      await eventually(() => links(milano) === '0-0 up, 0-1 up, 0-2 up', { deadlineMs: 10_000 })
      t.strictSame(paris.map(links), ['0-0 up', '1-0 up', '2-0 up'])
      for (const lane of [0, 1, 2]) t.equal(await listening(milano, `sealane${lane}`), String(4500 + lane))
      for (const one of paris) t.equal(await listening(one, 'sealane0'), '4500', 'towards milano, which has lane 0')
      const addresses = await milano.site.gateway.exec('ip', ['-4', '-o', 'address', 'show', 'to', '246.0.0.0/8'])
      t.equal(addresses.match(/inet 246\.0\.1\.0\/32/g)?.length, 3, 'one address on every device')
      // The three pods have one address, so an answer may reach another pod than the one that asked; therefore they do
      // not call here.
      await carries('three', [])
    })

    for (const survivor of [0, 1]) {
      await t.test(`gateway ${survivor} alone, the others out of reach`, async () => {
        const others = paris.filter((_, lane) => lane !== survivor)
        await milano.site.gateway.exec('nft', ['-f', '-'], { input: blocked(others) })
        await untilOver(survivor)
        await carries(`gateway ${survivor}`, paris.slice(survivor, survivor + 1))
        await milano.site.gateway.exec('nft', ['delete', 'table', 'ip', 'block'])
        await untilOver(0, 1, 2)
      })
    }

    await t.test('two are killed, and gateway 2 alone carries', async () => {
      for (const one of paris.slice(0, 2)) await vanish(one)
      await untilOver(2)
      await carries('the third', paris.slice(2))
    })

    const { stdout } = await internet.tryExec('nft', ['list', 'counters', 'table', 'ip', 'watch'])
    t.match(stdout, /counter inner \{\s+packets 0 /, 'the internet saw no inner address')
  })
})

t.test('two gateways on each side, of different numbers', { skip, timeout: 90_000 * SLOWNESS }, async (t) => {
  const inits = [MILANO, gatewayOfLane(MILANO, 3), PARIS, gatewayOfLane(PARIS, 1)]
  await withManyIn(temporaryFolder(t), inits, async (gateways) => {
    const [milano, paris] = [gateways.slice(0, 2), gateways.slice(2)]
    for (const here of milano) for (const there of paris) introduce(here, there)
    const all = (): string => gateways.map(links).join('; ')
    await eventually(() => all() === '0-0 up, 0-1 up; 3-0 up, 3-1 up; 0-0 up, 0-3 up; 1-0 up, 1-3 up', {
      deadlineMs: 20_000,
      say: `four links, seen from both ends (${all()})`,
    })
    const ports = await Promise.all([
      ...milano.slice(1).map((one) => listening(one, 'sealane1')),
      ...paris.slice(1).map((one) => listening(one, 'sealane3')),
    ])
    t.strictSame(ports, ['4501', '4503'], 'each listens at the number of the other')
    for (const { process } of gateways) {
      const ways = process.status?.connections.map(({ usingAddress }) => usingAddress?.split(':')[1])
      const { lane } = process.status?.connections[0] ?? {}
      t.strictSame(new Set(ways), new Set([String(4500 + (lane ?? NaN))]), `lane ${lane} calls at its own number`)
    }
  })
})
