/** The fate of a lane when the process that holds it ends, or when its node stops being a gateway. */
import t from 'tap'
import { wireguardRules } from '../../../gateway/cable/wireguard/plan-device.ts'
import { type Ends, handLaneOver } from '../../../gateway/lease/hand-over.ts'
import type { GatewayDeps } from '../../../gateway/world/deps.ts'
import { type Cluster, type Name, served } from './tenure-cluster.ts'

/** Ends the process as one with a lane in user space ends. */
function ending(
  { objects, clock, logger, tenures }: Cluster,
  name: Name,
  driver: string,
  ends: Ends = 'process',
): Promise<void> {
  const cable = { rules: wireguardRules, driver: () => Promise.resolve({ name: `wireguard-${driver}` }) }
  const deps = { api: objects, clock, logger, cable } as unknown as GatewayDeps
  const tenure = tenures.get(name)
  if (tenure === undefined) throw new Error('no tenure')
  return handLaneOver(deps, tenure, ends)
}

async function tookMs(cluster: Cluster, end: Promise<void>): Promise<number> {
  const began = cluster.clock.monotonic()
  const over = new AbortController()
  void end.then(() => over.abort())
  for (let i = 0; i < 1000 && !over.signal.aborted; i += 1) await cluster.pass(100)
  return cluster.clock.monotonic() - began
}

t.test('the end of the process', async (t) => {
  const rows: [say: string, driver: string, others: 'there' | 'away', fromMs: number, toMs: number][] = [
    ['a lane of the kernel goes on without it', 'kernel', 'there', 0, 500],
    ['one of user space is handed over', 'userspace', 'there', 2000, 5000],
    ['unless there is nobody', 'userspace', 'away', 0, 500],
  ]
  for (const [say, driver, others, fromMs, toMs] of rows) {
    const cluster = await served(t)
    if (others === 'away') for (const name of ['b', 'c'] as const) cluster.node(name, { unschedulable: true })
    cluster.reports('b', { paris: 'up', tokyo: 'up' })
    const ms = await tookMs(cluster, ending(cluster, 'a', driver))
    t.ok(ms >= fromMs && ms <= toMs, `${say}: ${ms} ms`)
    t.equal(cluster.states.includes('b serving'), fromMs > 0, say)
  }
  const down = await served(t)
  down.node('a', { taints: [{ key: 'node.kubernetes.io/not-ready', effect: 'NoExecute' }] })
  down.reports('b', { paris: 'up', tokyo: 'up' })
  await tookMs(down, ending(down, 'a', 'kernel'))
  t.match(down.states, 'b serving', 'a machine that shuts down takes the lane of its kernel along')

  const cluster = await served(t)
  t.ok((await tookMs(cluster, ending(cluster, 'b', 'userspace'))) < 500, 'who stands by just ends')

  for (const others of ['none', 'away'] as const) {
    const alone = await served(t)
    for (const name of ['b', 'c'] as const) {
      alone.kill(name)
      if (others === 'none') alone.label(name, undefined)
    }
    alone.label('a', undefined)
    await tookMs(alone, ending(alone, 'a', 'kernel', 'gateway'))
    const holder = (): string | undefined => alone.leases.get('sealane-lane-0')?.spec?.holderIdentity
    t.equal(holder(), '', `given back, others ${others}`)
    await alone.pass(20_000)
    t.equal(holder(), '', 'and not taken again by a node that is no gateway')
    alone.node('c', {})
    alone.start('c')
    await alone.pass(3000)
    t.equal(holder(), 'c', 'the next one need not wait')
  }

  const dead = await served(t)
  dead.kill('b')
  dead.kill('c')
  const ms = await tookMs(dead, ending(dead, 'a', 'userspace'))
  t.ok(ms >= 5000 && ms < 6000, `nobody comes: ${ms} ms`)

  const slow = await served(t)
  const slowMs = await tookMs(slow, ending(slow, 'a', 'userspace'))
  t.ok(slowMs >= 25_000 && slowMs < 26_000, `it comes and is not up in time: ${slowMs} ms`)

  const gone = await served(t)
  for (const name of ['b', 'c'] as const) gone.kill(name)
  await tookMs(gone, ending(gone, 'a', 'kernel', 'gateway'))
  t.equal(gone.leases.get('sealane-lane-0')?.spec?.holderIdentity, '', 'who is no gateway any more gives it back')
})

t.test('a label that is taken off: the node goes on until another gateway carries', async (t) => {
  const cluster = await served(t)
  cluster.reports('a', { paris: 'up', tokyo: 'up' })
  cluster.reports('b', { paris: 'up', tokyo: 'up' })
  for (const name of ['b', 'c'] as const) cluster.kill(name)
  cluster.label('a', undefined)
  cluster.reported()
  const from = cluster.clock.monotonic()
  let endedMs: number | undefined
  const end = ending(cluster, 'a', 'kernel', 'gateway').then(() => (endedMs = cluster.clock.monotonic() - from))
  await cluster.pass(20_000)
  t.equal(endedMs, undefined, 'what a process said that is gone does not count')
  const goesOn =
    /^Warning LaneNotHandedOver a: .* this node keeps carrying it until another one does, for at most 60 s$/
  t.equal(cluster.reported().filter((line) => goesOn.test(line)).length, 1)
  cluster.reports('b', { paris: 'up', tokyo: 'connecting' })
  await cluster.pass(5000)
  t.equal(endedMs, undefined, 'one that reaches less does not carry')
  cluster.reports('b', { paris: 'up', tokyo: 'up' })
  await cluster.pass(5000)
  await end
  t.ok(endedMs !== undefined && endedMs >= 25_000 && endedMs < 30_000, `after ${endedMs} ms`)
  t.equal(cluster.leases.get('sealane-lane-0')?.spec?.holderIdentity, '', 'and gives the lane back')
})

t.test('several gateways may carry together, each a part of the clusters', async (t) => {
  const cluster = await served(t)
  cluster.reports('a', { paris: 'up', tokyo: 'up' })
  for (const name of ['b', 'c'] as const) cluster.kill(name)
  cluster.label('a', undefined)
  let ended = false
  void ending(cluster, 'a', 'kernel', 'gateway').then(() => (ended = true))
  await cluster.pass(1000)
  cluster.reports('b', { paris: 'up', tokyo: 'connecting' })
  await cluster.pass(5000)
  t.notOk(ended)
  cluster.reports('c', { paris: 'down', tokyo: 'up' })
  await cluster.pass(5000)
  t.ok(ended, 'routes are chosen for each cluster, so it need not wait for one that has all')
})

t.test('a label with another lane: the only gateway lets go at once, and carries again with the next', async (t) => {
  const cluster = await served(t)
  cluster.reports('a', { paris: 'up', tokyo: 'up' })
  for (const name of ['b', 'c'] as const) cluster.kill(name)
  cluster.label('a', '1')
  const ms = await tookMs(cluster, ending(cluster, 'a', 'kernel', 'lane'))
  t.ok(ms < 1000, `after ${ms} ms`)
  t.equal(cluster.leases.get('sealane-lane-0')?.spec?.holderIdentity, '')
})
