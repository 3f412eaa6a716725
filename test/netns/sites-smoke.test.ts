/**
 * A short form of the long stories of plain sites (test/lanes/diagnose-*, site-gateways), once each: `sealane diagnose`
 * names a fault first and finds nothing once it is undone, and another node takes the lane of one that is gone.
 */
import { getPriority } from 'node:os'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { CommandLine } from './support/command-line.ts'
import { chain, firewall } from './support/fault.ts'
import { type PlainSite, type SitePlan, withPlainSites } from './support/plain-sites.ts'
import { LANES } from './support/site-faults.ts'

t.setTimeout(280_000)

const MILANO: SitePlan = {
  ...{ name: 'milano', uplinks: '192.0', pods: '10.42', nodes: ['gw1', 'gw2'] },
  spec:
    '  gateways: [{ node: gw1, publicAddress: 192.0.11.2 }, { node: gw2, publicAddress: 192.0.12.2 }]\n' +
    `  activeGateways: 1\n  dns: { listen: ['10.42.1.1:53', '10.42.2.1:53'] }\n`,
}
const PARIS: SitePlan = {
  ...{ name: 'paris', uplinks: '198.51', pods: '10.52', nodes: ['gw1'] },
  spec: `  gateways: [{ node: gw1, publicAddress: 198.51.11.2 }]\n  dns: { listen: ['10.52.1.1:53'] }\n`,
}
/**
 * The nice value of a node's process. It inherits a value that the user has chosen; otherwise it raises its priority.
 */
const NICE = getPriority() === 0 ? -10 : getPriority()
const LONG = { deadlineMs: 60_000, intervalMs: 500 }

t.test('a fault is named, and a gateway that is gone is replaced', { skip: netnsMissing() ?? false }, async (t) => {
  await withPlainSites(temporaryFolder(t), [MILANO, PARIS], async ([milano, paris]) => {
    if (milano === undefined || paris === undefined) throw new Error('no sites')
    const [gw1, gw2, far] = [milano.machine('gw1'), milano.machine('gw2'), paris.machine('gw1')]
    const line = new CommandLine(far.netns)
    try {
      paris.up('gw1')
      milano.up('gw1')
      await eventually(() => milano.lanes('gw1') === '0 (1 up)', { ...LONG, say: 'gw1 serves' })
      t.equal(getPriority(gw1.pid), NICE, 'the kernel favours it, unless somebody has chosen its priority')
      milano.up('gw2')
      await eventually(() => gw2.said.includes('every lane has a gateway; this node is on standby'), LONG)
      await finds(line, paris, '')
      const undo = await firewall(far.netns, chain('input', `udp dport ${LANES} drop`))
      await finds(line, paris, 'FirewallDrops')
      await undo()
      await finds(line, paris, '')
      t.pass('diagnose names the fault, and nothing when it is undone')

      await gw1.lose()
      await eventually(() => milano.lanes('gw2') === '0 (1 up)', { ...LONG, say: 'gw2 serves' })
      await eventually(() => gw2.pings(far.podAddress), { ...LONG, say: 'gw2 reaches paris' })
      t.pass('another node has taken the lane')
    } catch (error) {
      t.comment(milano.said(), paris.said())
      throw error
    } finally {
      line.close()
    }
  })
})

/**
 * Waits for these reason codes, ignoring the loss of links in the last half minute, and that the site has just started.
 */
async function finds(line: CommandLine, site: PlainSite, codes: string): Promise<void> {
  await eventually(
    async () => {
      const { stdout, stderr, code } = await line.run(['diagnose', '--site', site.file, '-o', 'json'])
      if (code > 2) throw new Error(stderr)
      const { problems } = JSON.parse(stdout) as { problems: readonly { readonly reason: string }[] }
      const reasons = problems
        .map(({ reason }) => reason)
        // These sites expose all pods (plain-sites.ts).
        .filter((one) => one !== 'LinkLossy' && one !== 'AllPodsExposed' && (codes === '' || one !== 'Starting'))
      if ([...new Set(reasons)].join() === codes) return true
      throw new Error(reasons.join())
    },
    { deadlineMs: 90_000, intervalMs: 1000, say: `${site.plan.name} finds ${codes === '' ? 'nothing' : codes}` },
  )
}
