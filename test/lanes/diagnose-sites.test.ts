/**
 * The failure table on plain sites: each fault is really made, `sealane diagnose` names it first, and finds nothing
 * once it is undone. The loss of a link is reported for half a minute, so the tests do not wait for that after each
 * fault.
 */
import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { atExit } from '../support/at-exit.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type FaultSites, type FaultStory, withFaultStory } from '../netns/support/fault-story.ts'
import { PORT_TAKEN, ROUNDS, SECOND_ADDRESS, UPSTREAM, startUpstream } from '../netns/support/site-faults.ts'

t.setTimeout(390_000)

const SITES: FaultSites = [
  {
    ...{ name: 'milano', uplinks: '192.0', pods: '10.42', nodes: ['gw1', 'gw2'] },
    spec:
      '  gateways: [{ node: gw1, publicAddress: 192.0.11.2 }, { node: gw2, publicAddress: 192.0.12.2 }]\n' +
      `  dns: { listen: ['10.42.1.1:53', '10.42.2.1:53'] }\n`,
  },
  {
    ...{ name: 'paris', uplinks: '198.51', pods: '10.52', nodes: ['gw1'] },
    spec: `  gateways: [{ node: gw1, publicAddress: 198.51.11.2 }]\n  dns: { listen: ['10.52.1.1:53'] }\n`,
  },
  {
    ...{ name: 'roma', uplinks: '198.52', pods: '10.62', nodes: ['gw1'] },
    spec:
      '  gateways: [{ node: gw1, publicAddress: 198.52.11.2 }]\n' +
      `  dns: { listen: ['10.62.1.1:53'], upstreams: ['${UPSTREAM.address}:${UPSTREAM.port}'] }\n`,
  },
]

t.test('faults of plain sites', { skip: netnsMissing() ?? false }, async (t) => {
  const folder = temporaryFolder(t)
  smallDisk(t, join(folder, 'roma', 'state'))
  const run = async (story: FaultStory): Promise<void> => {
    const { world } = story
    await startUpstream(world)
    const free = await PORT_TAKEN.inject(world)
    world.paris.export('web', world.paris.machine('gw1'))
    story.upAll()
    await story.finds([PORT_TAKEN])
    await free()
    await story.findsNothing()
    await story.run(ROUNDS)
  }
  await withFaultStory(t, folder, SITES, run, { secondAddress: SECOND_ADDRESS })
})

/** Mounts a small disk that is unmounted before its folder is removed. */
function smallDisk(t: Test, path: string): void {
  mkdirSync(path, { recursive: true })
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=16m', 'tmpfs', path])
  const forget = atExit('programs', () => execFileSync('umount', ['--lazy', path]))
  t.teardown(() => {
    forget()
    execFileSync('umount', ['--lazy', path])
  })
}
