/**
 * An autoscaler adds and removes nodes of a joined cluster, and calls from the other cluster go on: real API servers, real
 * packets. Four machines come one after the other; each one before them is removed as the cluster autoscaler does it, with
 * a taint first. Meanwhile thirty Nodes without a machine come and go. The join chose the gateways, so the agent keeps
 * their number.
 */
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { nodeObject } from '../support/objects/node-objects.ts'
import type { Site } from './support/callers.ts'
import { type NodeWorld, FAR, gateways, names, startNodeWorld } from './gateways/node-world.ts'
import { type LateNode, addNode } from './support/late-node.ts'
import { callSteadily } from './support/steady-calls.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'

t.setTimeout(1_750_000)

const LABEL = 'sealane.io/gateway'
/** Of a node that its autoscaler is about to remove. */
const TAINT = { key: 'ToBeDeletedByClusterAutoscaler', effect: 'NoSchedule' }
const MACHINES = 4
const NODES = 30
/** As for a lane that is handed over (moving-stories.ts). */
const LONGEST_GAP_MS = 10_000

t.test('thirty nodes come and go, calls go on', { skip: kubeletMissing() ?? false, timeout: 1_750_000 }, async (t) => {
  const world = await startNodeWorld(t)
  const [, second] = world.nodes
  const calls = await callSteadily(world.there, 'demo', FAR, 'c2')
  const stop = new AbortController()
  const others = comeAndGo(world.here, stop.signal)
  // The machine of the second gateway is removed first.
  let before: string = second.name
  let last: LateNode | undefined
  for (let i = 1; i <= MACHINES; i += 1) {
    const next = await added(world, i, last)
    await replaced(t, world, before, next.name)
    if (last === undefined) await lost(world, before)
    else await last.remove()
    await eventually(async () => !(await names(world.here, 'routeagents')).includes(before), {
      deadlineMs: 60_000,
      say: `all that ${before} told is gone`,
    })
    ;[before, last] = [next.name, next]
  }
  t.equal(await others, NODES)
  const { calls: count, unanswered, longestGapMs } = await calls.stop()
  t.comment(`${unanswered} of ${count} calls had no answer; the longest gap was ${longestGapMs} ms`)
  t.ok(longestGapMs < LONGEST_GAP_MS, `no gap of ${LONGEST_GAP_MS} ms: the longest was ${longestGapMs} ms`)
  t.equal((await labelled(world.here)).length, 2, 'as many gateways as the join chose')
  stop.abort()
  await last?.remove()
})

async function added({ clusters, directory }: NodeWorld, i: number, last: LateNode | undefined): Promise<LateNode> {
  const [, cluster] = clusters.clusters
  if (cluster === undefined) throw new Error('no second cluster')
  const late = last === undefined ? [] : [last]
  return addNode({ clusters, cluster, name: `c2m${i}`, address: `192.0.2.${60 + i}`, directory, late })
}

/** The node gets the taint, and another one takes its place before it goes. */
async function replaced(t: Test, { here }: NodeWorld, node: string, by: string): Promise<void> {
  await eventually(async () => (await names(here, 'routeagents')).includes(by), {
    deadlineMs: 90_000,
    say: `${by} runs`,
  })
  await here.api.merge(`/api/v1/nodes/${node}`, { spec: { taints: [TAINT] } })
  await eventually(async () => (await labelled(here)).includes(by), { deadlineMs: 60_000, say: `${by} is chosen` })
  await eventually(async () => (await gateways(here)).includes(by), { deadlineMs: 90_000, say: `${by} is a gateway` })
  t.pass(`${by} took the place of ${node}`)
}

async function lost({ nodes, here }: NodeWorld, name: string): Promise<void> {
  await nodes.find((one) => one.name === name)?.kubelet.kill()
  await here.api.delete(`/api/v1/nodes/${name}`)
}

async function labelled({ api }: Site): Promise<readonly string[]> {
  const nodes = await api.list(`/api/v1/nodes?labelSelector=${LABEL}`)
  return nodes.map(({ metadata }) => metadata.name)
}

/** Nodes that register and are removed again: nothing runs on them, so none of them may be chosen. Gives their number. */
async function comeAndGo({ api }: Site, signal: AbortSignal): Promise<number> {
  let count = 0
  while (count < NODES && !signal.aborted) {
    const name = `c2v${count}`
    await api.post('/api/v1/nodes', nodeObject(name, { metadata: { labels: { 'kubernetes.io/os': 'linux' } } }))
    await new Promise((resolve) => setTimeout(resolve, 1000))
    await api.merge(`/api/v1/nodes/${name}`, { spec: { taints: [TAINT] } })
    await api.delete(`/api/v1/nodes/${name}`)
    count += 1
  }
  return count
}
