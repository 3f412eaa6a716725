/** An intruder on a node removes our kernel state; the routeagent restores it at once and logs the loss. */
import t, { type Test } from 'tap'
import { pings } from '../gateway/support/pod-programs.ts'
import { type Site, here, ip } from '../routeagent/support/datapath.ts'
import { eventually } from '../support/eventually.ts'
import { inPrivateNetns, withNetns } from '../support/netns.ts'
import { attack } from './support/attack.ts'
import { knockAt, sendDatagrams, vxlanFrame } from './support/raw-packets.ts'
import { BRIDGE, FAR, HOST_PORT, POD, ROME, WORKER, type Worker, buildWorker } from './support/worker.ts'

inPrivateNetns(t, import.meta.url, () =>
  withNetns((pod) => withNetns(async (far) => report(await buildWorker(t, pod, far)))),
)

async function report(worker: Worker): Promise<void> {
  const { site, pod, far } = worker
  await eventually(async () => (await pings(pod, FAR)).includes('1 received'), { say: 'other clusters are reached' })
  const tables = async (): Promise<string> =>
    (await here('nft', '-s', 'list', 'table', 'ip', 'sealane_node')) +
    (await here('nft', '-s', 'list', 'table', 'ip6', 'sealane_node'))
  const meant = await tables()

  await attack('node-nft-flushed', async (t) => {
    await here('nft', 'flush', 'ruleset')
    await mended(t, async () => (await tables()) === meant)
    const lost = (): number =>
      site.logger.lines.filter(({ fields }) => String(fields['items']) === 'the whole table').length
    // The line is logged after the repair that it describes.
    await eventually(() => lost() >= 2, { say: 'one line for each family says that the table was missing' })
    t.equal(lost(), 2, 'and no more')
    t.equal(await knockAt(far, 'tcp', BRIDGE, HOST_PORT), 'ECONNREFUSED', 'the node is closed again')
    await sendDatagrams(pod, [{ to: WORKER, port: 4810, hex: vxlanFrame(WORKER, { from: ROME, to: POD }) }])
    t.match(await here('nft', 'list', 'counter', 'ip', 'sealane_node', 'dropped-overlay-stranger'), /packets 1 /)
  })
  await attack('node-chain-deleted', async (t) => {
    await here('nft', 'delete', 'chain', 'ip', 'sealane_node', 'keep-source')
    await mended(t, async () => (await tables()) === meant)
    await reported(t, site, ({ reason, items }) => reason === 'Missing' && String(items) === 'chain keep-source')
  })
  await attack('node-route-and-rule-deleted', async (t) => {
    const before = await routing()
    const repairs = await count(site, 'route', 'Missing')
    await ip('rule del priority 75')
    await ip('-6 rule del priority 75')
    await ip('route del 244.1.0.0/16 table 7312 metric 100')
    await ip('-6 route del fd00:20:42::/56 table 7312 metric 100')
    await mended(t, async () => (await routing()) === before)
    for (const item of ['ip rule add', 'ip -6 rule add', '244.1.0.0/16', 'fd00:20:42::/56']) {
      await reported(t, site, ({ reason, items }) => reason === 'Missing' && String(items).includes(item), item)
    }
    await eventually(async () => (await count(site, 'route', 'Missing')) > repairs, { say: 'and it is counted' })
    t.pass('and it is counted')
  })
  await attack('node-overlay-deleted', async (t) => {
    const before = await routing()
    await ip('link del sealane-vx')
    await mended(t, async () => (await routing()) === before)
    await eventually(async () => (await pings(pod, FAR)).includes('1 received'), { say: 'other clusters are reached' })
    for (const kind of ['link', 'route', 'neighbour', 'forwarding-entry']) {
      await reported(t, site, ({ what, reason }) => what === kind && reason === 'Missing', kind)
    }
  })
  await attack('node-neighbour-deleted', async (t) => {
    const before = await neighbours()
    const lines = site.logger.lines.length
    await ip('neighbour del 192.168.7.1 dev sealane-vx')
    await here('bridge', 'fdb', 'del', '0a:5e:c0:a8:07:01', 'dev', 'sealane-vx', 'dst', '192.168.7.1', 'self')
    await mended(t, async () => (await neighbours()) === before)
    const after = (): readonly unknown[] => site.logger.lines.slice(lines).map(({ fields }) => fields['what'])
    await eventually(() => after().includes('neighbour') && after().includes('forwarding-entry'), {
      say: 'both are told',
    })
    t.pass('both are told')
  })
}

async function routing(): Promise<string> {
  const parts = ['rule', '-6 rule', 'route show table 7312', '-6 route show table 7312'].map(ip)
  return (await Promise.all(parts)).join('\n') + (await neighbours())
}

async function neighbours(): Promise<string> {
  const [four, six, entries] = await Promise.all([
    ip('-4 neighbour show dev sealane-vx nud permanent'),
    ip('-6 neighbour show dev sealane-vx nud permanent'),
    here('bridge', 'fdb', 'show', 'dev', 'sealane-vx'),
  ])
  return [four, six, entries].map((text) => text.split('\n').sort().join('\n')).join('\n')
}

async function mended(t: Test, check: () => Promise<boolean>): Promise<void> {
  const start = performance.now()
  await eventually(async () => await check().catch(() => false), { say: 'it is put right' })
  t.pass(`put right after ${Math.round(performance.now() - start)} ms`)
}

async function reported(
  t: Test,
  site: Site,
  says: (fields: Record<string, unknown>) => boolean,
  say = 'it is told',
): Promise<void> {
  await eventually(() => site.logger.lines.some(({ level, fields }) => level === 'warn' && says(fields)), { say })
  t.pass(say)
}

async function count(site: Site, what: string, reason: string): Promise<number> {
  const lines = (await site.metrics.text()).split('\n').filter((line) => line.includes('drift_repairs_total{'))
  const found = lines.find((line) => line.includes(`what="${what}"`) && line.includes(`reason="${reason}"`))
  return Number(found?.split(' ').at(-1) ?? 0)
}
