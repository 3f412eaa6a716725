/**
 * A site of three machines, of which one has the folder: the others have one file each and speak with its hub. Then the
 * machine with the folder is lost: nothing that runs is touched, also where a process starts again meanwhile.
 */
import { existsSync, mkdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type PlainSite, type SitePlan, withPlainSites } from '../netns/support/plain-sites.ts'

t.setTimeout(280_000)

const MILANO: SitePlan = {
  ...{ name: 'milano', uplinks: '192.0', pods: '10.42', nodes: ['gw1', 'gw2', 'worker'] },
  spec:
    '  gateways: [{ node: gw1, publicAddress: 192.0.11.2 }, { node: gw2, publicAddress: 192.0.12.2 }]\n' +
    "  activeGateways: 2\n  hub: { listen: ['192.0.11.2:9474'] }\n",
}
const PARIS: SitePlan = {
  ...{ name: 'paris', uplinks: '198.51', pods: '10.52', nodes: ['gw1'] },
  spec: '  gateways: [{ node: gw1, publicAddress: 198.51.11.2 }]\n',
}
const LONG = { deadlineMs: 60_000, intervalMs: 500 }

t.test('nodes without the folder of their site', { skip: netnsMissing() ?? false }, async (t) => {
  const folder = temporaryFolder(t)
  await withPlainSites(folder, [MILANO, PARIS], async ([milano, paris]) => {
    if (milano === undefined || paris === undefined) throw new Error('no sites')
    const [gw1, gw2, worker] = [milano.machine('gw1'), milano.machine('gw2'), milano.machine('worker')]
    const far = paris.machine('gw1')
    try {
      paris.up('gw1')
      milano.up('gw1')
      await eventually(() => gw1.said.includes('the hub of the site is up'), { ...LONG, say: 'the hub' })
      const files = new Map<string, string>()
      for (const name of ['gw2', 'worker']) files.set(name, await invited(milano, name, join(folder, 'machines')))
      const up = (name: string): void =>
        milano.machine(name).start(['up', '--site', files.get(name) ?? '', '--node', name])
      up('gw2')
      up('worker')
      await eventually(() => milano.lanes('gw1') === '0 (1 up)', { ...LONG, say: 'gw1 serves' })
      await eventually(() => /^1 \(1 up\)$/.test(milano.lanes('gw2')), { ...LONG, say: 'gw2 serves, and told the hub' })
      for (const machine of [gw2, worker])
        await eventually(() => machine.pings(far.podAddress), { ...LONG, say: `${machine.name} reaches paris` })
      t.pass('calls work from machines that have one file and no folder')
      t.notOk(
        existsSync(join(folder, 'machines', 'gw2', 'state', 'identity')),
        'the identity of the site stays at the hub',
      )

      await gw1.lose()
      for (const machine of [gw2, worker]) {
        await eventually(() => machine.said.includes('no hub of the site can be reached'), { ...LONG, say: 'told' })
        await eventually(() => machine.pings(far.podAddress), { ...LONG, say: `${machine.name} still reaches paris` })
      }
      let answered = 0
      for (let i = 0; i < 20; i += 1) if (await worker.pings(far.podAddress)) answered += 1
      t.ok(answered >= 19, `${answered} of 20 calls work without the hub`)

      await worker.stop()
      up('worker')
      await eventually(() => worker.said.includes('continues from what it knew'), { ...LONG, say: 'known objects' })
      await eventually(() => worker.pings(far.podAddress), { ...LONG, say: 'the worker after its restart' })
      t.ok(await gw2.pings(far.podAddress), 'and the gateway was not touched')

      await gw1.reconnect()
      milano.up('gw1')
      await eventually(() => worker.said.includes('the hub of the site answers again'), {
        ...LONG,
        say: 'the hub is back',
      })
      await eventually(() => milano.lanes('gw1') === '0 (1 up)', { ...LONG, say: 'gw1 serves again' })
      t.ok(await worker.pings(far.podAddress))
    } catch (error) {
      t.comment(milano.said(), paris.said())
      throw error
    }
  })
})

/** Writes the file of a node where its machine keeps it, and gives its path. */
async function invited(site: PlainSite, node: string, machines: string): Promise<string> {
  mkdirSync(join(machines, node), { recursive: true })
  const file = join(machines, node, 'node.yaml')
  const first = site.machine('gw1')
  await first.run(['site', 'invite', node, '--site', site.file, '--out', file])
  t.equal(statSync(file).mode & 0o777, 0o600, 'only its owner may read it')
  return file
}
