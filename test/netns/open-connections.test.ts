/**
 * Each node counts the connections of its own pods, and no others, with real connection tracking: with translation at
 * both ends, with a gateway node in between, and by a clusterset IP. The sites are those of
 * test/routeagent/support/calico-sites.ts.
 */
import t from 'tap'
import type { OpenConnections } from '../../model/member-status.ts'
import { POD_PROGRAMS, inPod } from '../gateway/support/pod-programs.ts'
import { reported, withCalicoSites } from '../routeagent/support/calico-sites.ts'
import type { NodeProcess } from '../routeagent/support/node-process.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing } from '../support/netns.ts'

const skip = netnsMissing() ?? false

/** Opens a connection, and returns the function that ends it. */
async function hold(pod: Netns, to: string): Promise<() => void> {
  const child = pod.spawn(process.execPath, ['-e', POD_PROGRAMS.hold, to])
  const [said] = await new Promise<Buffer[]>((resolve) =>
    child.stdout?.once('data', (...all: Buffer[]) => resolve(all)),
  )
  if (said?.toString().trim() !== 'open') throw new Error(`${to}: ${said?.toString() ?? ''}`)
  return () => void child.kill('SIGKILL')
}

t.test('connections between two sites', { skip, timeout: 120_000 * SLOWNESS }, async (t) => {
  await withCalicoSites(t, async ({ workerPod, parisPod, gwProcess, workerProcess, parisProcess }) => {
    const counts = async (process: NodeProcess, name: string, count: number, say: string): Promise<void> => {
      const figure = (): OpenConnections | undefined => reported(process, name)?.openConnections
      const isSo = (): boolean => {
        process.wake()
        return figure()?.count === count && figure()?.atLeast === false
      }
      await eventually(isSo, { deadlineMs: 20_000, intervalMs: 200, say })
    }
    await counts(gwProcess, 'gw', 0, 'nothing is open at gw')
    await counts(workerProcess, 'worker', 0, 'nothing is open at the worker')
    await counts(parisProcess, 'gw', 0, 'nothing is open at paris')
    const reached = async (): Promise<boolean> => (await inPod(workerPod, 'tcp', '244.1.8.7')).endsWith('200000')
    await eventually(reached, { deadlineMs: 30_000, say: 'the pod of paris is reached' })

    const ends = [await hold(workerPod, '244.1.8.7'), await hold(workerPod, '245.0.0.7')]
    await counts(workerProcess, 'worker', 2, 'by its address, and by a clusterset IP')
    await counts(parisProcess, 'gw', 2, 'where they arrive')
    await counts(gwProcess, 'gw', 0, 'they pass the gateway node, which has no part in them')
    for (const end of ends) end()
    await counts(workerProcess, 'worker', 0, 'they are closed')
    await counts(parisProcess, 'gw', 0, 'there as well')

    await hold(parisPod, '244.0.5.7')
    await counts(gwProcess, 'gw', 1, 'from the other site')
    await counts(parisProcess, 'gw', 1, 'whoever called')
    await counts(workerProcess, 'worker', 0, 'nothing to do with it')
  })
})
