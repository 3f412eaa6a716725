/** An intruder on a gateway node removes our kernel state; the gateway restores it at once and logs the loss. */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { pings } from '../gateway/support/pod-programs.ts'
import { DUAL_STACK_MILANO, DUAL_STACK_PARIS, type Running, msUntilUp } from '../gateway/support/two-gateways.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { withSockets } from '../support/wireguard-sockets.ts'
import { attack } from './support/attack.ts'
import { attackLane } from './support/lane-up.ts'

t.setTimeout(120_000 * SLOWNESS)

await attackLane(t, [DUAL_STACK_MILANO, DUAL_STACK_PARIS], report)

async function report(milano: Running, paris: Running): Promise<void> {
  const { gateway } = milano.site
  await passes(milano, 'before')
  const table = (family: string): Promise<string> =>
    gateway.exec('nft', ['-s', 'list', 'table', family, 'sealane_gateway'])
  const kernel = async (): Promise<string> => (await table('ip')) + (await table('ip6'))
  const meant = await kernel()

  await attack('gateway-nft-flushed', async (t) => {
    await gateway.exec('nft', ['flush', 'ruleset'])
    await mended(t, async () => (await kernel()) === meant)
    await reported(milano, 'nft-table', 'Missing', 'table ip sealane_gateway: the whole table')
    await reported(milano, 'nft-table', 'Missing', 'table ip6 sealane_gateway: the whole table')
    await passes(milano, 'traffic goes on')
  })
  await attack('gateway-chain-deleted', async (t) => {
    await gateway.exec('nft', ['delete', 'chain', 'ip', 'sealane_gateway', 'translate-out'])
    await mended(t, async () => (await kernel()) === meant)
    await reported(milano, 'nft-table', 'Missing', 'table ip sealane_gateway: chain translate-out')
    await passes(milano, 'traffic goes on')
  })
  await attack('gateway-route-deleted', async (t) => {
    const routes = (): Promise<string> => gateway.exec('ip', ['route', 'show', 'table', '7311'])
    const before = await routes()
    await gateway.exec('ip', ['route', 'add', '244.9.0.0/16', 'dev', 'sealane0', 'table', '7311', 'proto', '173'])
    await reported(milano, 'route', 'Foreign', '244.9.0.0/16')
    await gateway.exec('ip', ['route', 'del', '244.1.0.0/16', 'table', '7311'])
    await mended(t, async () => (await routes()) === before)
    await reported(milano, 'route', 'Missing', '244.1.0.0/16')
    await passes(milano, 'traffic goes on')
  })
  await attack('gateway-rule-deleted', async (t) => {
    for (const tool of [['rule'], ['-6', 'rule']]) {
      const rules = (): Promise<string> => gateway.exec('ip', [...tool, 'show'])
      const before = await rules()
      await gateway.exec('ip', [...tool, 'del', 'priority', '74'])
      await mended(t, async () => (await rules()) === before)
    }
    await reported(milano, 'rule', 'Missing', 'ip rule add')
    await reported(milano, 'rule', 'Missing', 'ip -6 rule add')
  })
  await attack('gateway-peer-removed', async (t) => {
    const [peer = ''] = (await wg(milano, 'show', 'sealane0', 'peers')).trim().split('\n')
    await wg(milano, 'set', 'sealane0', 'peer', peer, 'remove')
    await mended(t, async () => (await wg(milano, 'show', 'sealane0', 'peers')).includes(peer))
    await reported(milano, 'peers', 'Missing', `peer ${peer}`)
    await msUntilUp(milano, paris)
    await passes(milano, 'traffic comes back')
  })
  await attack('gateway-device-deleted', async (t) => {
    await gateway.exec('ip', ['link', 'del', 'sealane0'])
    await reported(milano, 'device', 'Missing', 'sealane0')
    await mended(t, async () => (await gateway.exec('ip', ['-o', 'link'])).includes('sealane0:'))
    await reported(milano, 'address', 'Missing', '246.0.1.0/32')
    await msUntilUp(milano, paris)
    await passes(milano, 'traffic comes back')
  })
}

/** Pings the far pod over both families. A ping is retried, because the lane may be opening a new session. */
async function passes({ site }: Running, say: string): Promise<void> {
  for (const far of ['244.1.0.5', 'fd42:2:0:0::5']) {
    const arrives = async (): Promise<boolean> => (await pings(site.pod, far, '-W', '1')).includes('1 received')
    await eventually(arrives, { deadlineMs: 15_000, say: `${say}: ${far}` })
  }
}

async function mended(t: Test, check: () => Promise<boolean>): Promise<void> {
  const start = performance.now()
  await eventually(async () => await check().catch(() => false), { say: 'it is put right' })
  t.pass(`put right after ${Math.round(performance.now() - start)} ms`)
}

async function reported({ process }: Running, what: string, reason: string, item: string): Promise<void> {
  const has = (): boolean =>
    process.errors.split('\n').some((line) => {
      if (!line.startsWith('{')) return false
      const said = JSON.parse(line) as { what?: string; reason?: string; items?: string[] }
      return said.what === what && said.reason === reason && said.items?.some((one) => one.includes(item)) === true
    })
  await eventually(has, { say: `the log has ${what} ${reason} ${item}: ${process.errors}` })
}

function wg({ site }: Running, ...args: string[]): Promise<string> {
  const [command = '', ...rest] = withSockets(join(site.folder, 'wireguard'), ['wg', ...args])
  return site.gateway.exec(command, rest)
}
