/**
 * A site without Kubernetes has three nodes that may be its gateway, one at a time, and no lane number is configured.
 * The node that serves, and whose agent acts, loses its power. Another node takes its lane, another agent acts, and
 * names are answered. The same happens if the node keeps its power, but another program takes its port.
 */
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type Machine, type PlainSite, type SitePlan, withPlainSites } from '../netns/support/plain-sites.ts'

t.setTimeout(240_000)

const MILANO: SitePlan = {
  name: 'milano',
  uplinks: '192.0',
  pods: '10.42',
  nodes: ['gw1', 'gw2', 'gw3'],
  spec:
    '  gateways:\n' +
    [1, 2, 3].map((n) => `    - { node: gw${n}, publicAddress: 192.0.1${n}.2 }\n`).join('') +
    '  activeGateways: 1\n' +
    `  dns: { listen: ['10.42.1.1:53', '10.42.2.1:53', '10.42.3.1:53'] }\n`,
}
/** The site file is one from before there were Leases. */
const PARIS: SitePlan = {
  name: 'paris',
  uplinks: '198.51',
  pods: '10.52',
  nodes: ['gw1'],
  spec: `  gateways: [{ node: gw1, lane: 0, publicAddress: 198.51.11.2 }]\n` + `  dns: { listen: ['10.52.1.1:53'] }\n`,
}
const ZONE = 'shop.svc.clusterset.local'
const LEADS = '"msg":"leading"'
/** These stories wait for the Lease of the lost node to expire, and for its last heartbeat to become stale. */
const TIMING = { SEALANE_LEASE: '5s', SEALANE_HEARTBEAT: '2s' }
const LONG = { deadlineMs: 60_000, intervalMs: 100 }

t.test('the gateway of a site is gone at once', { skip: netnsMissing() ?? false }, async (t) => {
  await withPlainSites(temporaryFolder(t), [MILANO, PARIS], async ([milano, paris]) => {
    if (milano === undefined || paris === undefined) throw new Error('no sites')
    for (const machine of [...milano.machines.values(), ...paris.machines.values()]) machine.environment = TIMING
    try {
      await story(t, milano, paris)
    } catch (error) {
      t.comment(milano.said(), paris.said())
      throw error
    }
  })
})

t.test('a gateway whose port another program has', { skip: netnsMissing() ?? false }, async (t) => {
  await withPlainSites(temporaryFolder(t), [MILANO, PARIS], async ([milano, paris]) => {
    if (milano === undefined || paris === undefined) throw new Error('no sites')
    for (const machine of [...milano.machines.values(), ...paris.machines.values()]) machine.environment = TIMING
    const [gw1, gw2] = ['gw1', 'gw2'].map((name) => milano.machine(name)) as [Machine, Machine]
    try {
      const squatter = gw1.netns.spawn(process.execPath, ['-e', SQUATTER])
      await once(squatter.stdout!, 'data')
      paris.up('gw1')
      milano.up('gw1')
      await eventually(() => said(milano, 'gw1', 'UDP port 4500 is taken by'), { ...LONG, say: 'it names the program' })
      milano.up('gw2')
      await eventually(() => milano.lanes('gw2') === '0 (1 up)', { ...LONG, say: 'the other one serves' })
      t.match(gw1.said, 'LaneNotMade')
      await eventually(() => gw1.pings(paris.machine('gw1').podAddress), { ...LONG, say: 'gw1 reaches paris by it' })
      await eventually(() => milano.lanes('gw1') === ' (0 up)', { ...LONG, say: 'gw1 has given it away' })
      t.match(await gw2.run(['show', 'gateways', '--site', milano.file]), /gw2\s+0\s+serving/)
    } catch (error) {
      t.comment(milano.said(), paris.said())
      throw error
    }
  })
})

const SQUATTER = `require('node:dgram').createSocket('udp4').bind(4500, () => console.log('ready'))`

async function story(t: Test, milano: PlainSite, paris: PlainSite): Promise<void> {
  const [gw1, gw2, gw3] = ['gw1', 'gw2', 'gw3'].map((name) => milano.machine(name)) as [Machine, Machine, Machine]
  const far = paris.machine('gw1')
  paris.export('web', far)
  paris.up('gw1')
  milano.up('gw1')
  await eventually(() => milano.lanes('gw1') === '0 (1 up)', { ...LONG, say: 'gw1 serves' })
  await eventually(() => said(milano, 'gw1', LEADS), { ...LONG, say: 'its agent acts' })
  milano.up('gw2')
  milano.up('gw3')
  for (const one of [gw2, gw3]) {
    await eventually(() => said(milano, one.name, 'every lane has a gateway; this node is on standby'), LONG)
    await eventually(async () => (await one.dig(one.podAddress, `web.${ZONE}`)) === `NOERROR ${far.podAddress}`, {
      ...LONG,
      say: `${one.name} answers names itself`,
    })
    await eventually(() => one.pings(far.podAddress), { ...LONG, say: `${one.name} reaches paris by gw1` })
  }
  t.equal(await gw2.dig(gw1.podAddress, `web.${ZONE}`), 'silent', 'each listens at its own addresses only')
  t.equal(milano.lanes('gw2') + milano.lanes('gw3'), ' (0 up) (0 up)', 'and they serve nothing')
  const table = await gw2.run(['show', 'gateways', '--site', milano.file])
  t.match(table, /gw1\s+0\s+serving/)
  t.match(table, /gw2\s+-\s+standing by/)

  const lost = performance.now()
  await gw1.lose()
  milano.export('late', gw3)
  const heir = await eventually(() => [gw2, gw3].find(({ name }) => milano.lanes(name) === '0 (1 up)'), {
    ...LONG,
    say: 'another one serves',
  })
  const other = heir === gw2 ? gw3 : gw2
  t.comment(`${heir.name} is up ${Math.round(performance.now() - lost)} ms after gw1 was lost`)
  for (const one of [heir, other]) {
    await eventually(() => one.pings(far.podAddress), { ...LONG, say: `${one.name} reaches paris again` })
    t.equal(await one.dig(one.podAddress, `web.${ZONE}`), `NOERROR ${far.podAddress}`, `${one.name} answers`)
  }
  t.comment(`all reach paris ${Math.round(performance.now() - lost)} ms after gw1 was lost`)
  const late = `NOERROR ${gw3.podAddress}`
  await eventually(async () => (await far.dig(far.podAddress, `late.${ZONE}`)) === late, {
    ...LONG,
    say: 'paris knows what was exported after the loss',
  })
  t.comment(`paris knows the new export ${Math.round(performance.now() - lost)} ms after gw1 was lost`)
  t.equal([gw2, gw3].filter(({ name }) => said(milano, name, LEADS)).length, 1, 'one agent acts')
  t.equal(milano.lanes(other.name), ' (0 up)', 'the third one stands by')

  await gw1.reconnect()
  const before = gw1.said.length
  milano.up('gw1')
  await eventually(() => gw1.said.slice(before).includes('on standby; the lane is removed from this node'), LONG)
  t.equal(milano.lanes(heir.name), '0 (1 up)', 'who comes back takes nothing away')
  await eventually(() => gw1.pings(far.podAddress), { ...LONG, say: 'gw1 reaches paris by the new one' })

  await gw2.run(['leave', '--yes', '--site', milano.file])
  for (const one of [gw1, gw2, gw3]) {
    const code = await one.ended()
    t.equal(code, 0, `${one.name} ends when the site has left`, { said: one.said.slice(-4000) })
  }
  t.notOk(milano.has('leases/sealane-lane-0'), 'and its Lease is gone')
}

function said(site: PlainSite, node: string, words: string): boolean {
  return site.machine(node).said.includes(words)
}
