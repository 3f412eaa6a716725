/** Another process holds one of our ports: the failure names it, and all is well once that process ends. */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import t, { type Test } from 'tap'
import type { Gateway, KubeObject, RouteAgent } from '../../model/objects.ts'
import { GatewayProcess, introduce, membership, withSites } from '../gateway/support/netns-sites.ts'
import { MILANO, PARIS, msUntilUp } from '../gateway/support/two-gateways.ts'
import { node } from '../gateway/support/worlds.ts'
import { NodeProcess } from '../routeagent/support/node-process.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, withNetns } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { attack } from './support/attack.ts'

t.setTimeout(240_000)

const SQUATTER = `
  const socket = require('node:dgram').createSocket('udp4')
  socket.bind(Number(process.argv[1]), () => console.log('ready'))`

const LANE_PORT = 4500
const PROBE_PORT = 4499
const OVERLAY_PORT = 4810

await attack('lane-port-taken', (t) => gatewayWithout(t, LANE_PORT))
await attack('probe-port-taken', (t) => gatewayWithout(t, PROBE_PORT))

await attack('overlay-port-taken', (t) =>
  withNetns(async (machine) => {
    await machine.exec('ip', ['link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'far0'])
    await machine.exec('ip', ['address', 'add', '192.0.2.10/24', 'dev', 'eth0'])
    await machine.exec('ip', ['link', 'set', 'eth0', 'up'])
    const squatter = await squat(machine, OVERLAY_PORT)
    const agent = new NodeProcess({ node: 'gw', netns: machine, folder: temporaryFolder(t) })
    try {
      const objects: readonly KubeObject[] = [
        membership('milano', 'joined'),
        MILANO.cluster,
        node('gw', '192.0.2.10', '10.42.0.0/24'),
        node('worker', '192.0.2.11', '10.42.1.0/24'),
      ]
      agent.put(...objects)
      const failure = (): string | undefined =>
        (agent.get('RouteAgent', 'gw') as RouteAgent | undefined)?.status?.failure
      await named(t, squatter, OVERLAY_PORT, failure)
      await ends(squatter)
      await eventually(() => agent.get('RouteAgent', 'gw') !== undefined && failure() === undefined, {
        deadlineMs: 20_000,
        say: `nothing fails any more: ${failure() ?? agent.errors}`,
      })
      t.match(await machine.exec('ip', ['link', 'show', 'sealane-vx']), /UP/)
    } finally {
      await agent.stop()
    }
  }),
)

async function gatewayWithout(t: Test, port: number): Promise<void> {
  await withSites([MILANO, PARIS], temporaryFolder(t), async (sites) => {
    const squatter = await squat(sites[0].gateway, port)
    const [milano, paris] = sites.map((site) => ({ site, process: new GatewayProcess(site) }))
    if (milano === undefined || paris === undefined) throw new Error('two sites')
    try {
      introduce(milano, paris)
      const status = (): Gateway['status'] => milano.process.status
      await named(t, squatter, port, () => status()?.failure)
      const ready = status()?.conditions?.find(({ type }) => type === 'Ready')
      t.match(ready, { status: 'False', reason: 'RoundFailed' })
      await ends(squatter)
      await msUntilUp(milano, paris, 30_000)
      await eventually(() => status()?.failure === undefined, { say: 'nothing fails any more' })
    } finally {
      await Promise.all([milano.process.stop(), paris.process.stop()])
    }
  })
}

async function squat(machine: Netns, port: number): Promise<ChildProcess> {
  const squatter = machine.spawn(process.execPath, ['-e', SQUATTER, String(port)])
  if (squatter.stdout === null) throw new Error('no standard output')
  await once(squatter.stdout, 'data')
  return squatter
}

/** `ip netns exec` becomes the program that it runs, so the process id is that of the squatter itself. */
async function named(t: Test, squatter: ChildProcess, port: number, failure: () => string | undefined): Promise<void> {
  const want = `UDP port ${port} is taken by node (process ${squatter.pid})`
  await eventually(() => failure()?.includes(want), { deadlineMs: 20_000, say: `${want}, not: ${failure() ?? ''}` })
  t.match(failure(), want)
}

async function ends(squatter: ChildProcess): Promise<void> {
  const ended = once(squatter, 'exit')
  squatter.kill('SIGKILL')
  await ended
}
